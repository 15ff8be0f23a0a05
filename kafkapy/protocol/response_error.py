"""The error code of another node's response as an ApiError."""

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

_BY_CODE = {int(code): code for code in ErrorCode}


def response_error(code: int, message: str | None = None) -> ApiError:
    """Return the error of a response; log lines name it if this version knows the code."""
    return ApiError(_BY_CODE.get(code, code), message)
