"""Response frames: encoded, as the error of a whole request, or as what is sent when a response cannot be."""

import logging
from collections.abc import Callable
from typing import Any

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.protocol.api import response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, write_response_header
from kafkapy.protocol.primitives import EncodeError, MessageStruct, Writer

logger = logging.getLogger("kafkapy.handlers")


Write = Callable[[Writer, Any, int], None]


def encode(header: RequestHeader, response: Any, write: Write | None = None) -> Writer:
    """Return a response frame. Raises EncodeError.

    write: appends the response at a version, as its own `write` does.

    A response with a string too long for its field (a message about a name of 32,767 bytes) becomes one in which every
    error is UNKNOWN_SERVER_ERROR, as in Apache Kafka.
    """
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    try:
        if write is None:
            response.write(out, header.api_version)
        else:
            write(out, response, header.api_version)
    except EncodeError as error:
        logger.warning("Answering UNKNOWN_SERVER_ERROR, as the response cannot be sent: %s", error)
        return _encode_failed(header, response)
    return out


def _encode_failed(header: RequestHeader, response: Any) -> Writer:
    _fail(response)
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    response.write(out, header.api_version)
    return out


def _fail(part: MessageStruct) -> None:
    """Set the error of the response, and of each topic, resource and the like in it."""
    for name in part.field_names():
        value = getattr(part, name)
        if name == "error_code":
            setattr(part, name, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        elif name == "error_message":
            setattr(part, name, None)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, MessageStruct):
                    _fail(each)


def error_response(header: RequestHeader, error: ApiError) -> Any:
    """Return the response with an error of the whole request.

    Handlers set the errors of topics, partitions and resources themselves. If the response has no field for an error of
    the whole request, ProtocolError is raised, which closes the connection, as in Apache Kafka.
    """
    response = response_type(header.api_key)()
    if not hasattr(response, "error_code"):
        raise ProtocolError(f"{error} has no place in {type(response).__name__}") from error
    response.error_code = int(error.code)
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response
