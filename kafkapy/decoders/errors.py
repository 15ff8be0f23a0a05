"""The error of a value that is not in the format that it is decoded by."""


class DecodeError(Exception):
    """A value cannot be decoded; the message is one line."""
