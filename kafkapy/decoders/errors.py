"""The error of a value that is not in the format that it is decoded by."""


class DecodeError(Exception):
    """Why a value cannot be decoded, in one line."""
