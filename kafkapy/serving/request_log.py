"""kafka.request.logger at DEBUG: a line for each request that is answered, with the fields of Apache Kafka's.

    Completed request:{"isForwarded": false, "requestHeader": {...}, "request": {...}, "response": {...}, ...}

Imported when the first line is written. Deviation: Apache Kafka measures several times, and writes every request. Here
one time is measured, from request to response, so totalTimeMs and localTimeMs are equal and the other times 0; request
and response are "" if the API carries secrets (configs, SCRAM, delegation tokens), because logs are read by others, or
if they are too large to be formatted in one turn of the loop.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import Connection
from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.headers import RequestHeader, read_request_header, read_response_header
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.seams import FileRegion
from kafkapy.serving.request_logger import request_logger

MAX_BYTES: Final = 1 << 20
MAX_ELEMENTS: Final = 1000
SECRET_APIS: Final = frozenset({33, 36, 38, 39, 40, 41, 44, 51, 58})
"""AlterConfigs, SaslAuthenticate, the four of delegation tokens, IncrementalAlterConfigs, AlterUserScramCredentials,
Envelope. A SaslHandshake names a mechanism only. One that a login expects is no request of the router: it has no line,
as in Apache Kafka."""
RECORDS_AT: Final = {"ProduceRequest": ("topic_data", "partition_data"), "FetchResponse": ("responses", "partitions")}
"""The messages with records, and the arrays that contain them. Of records only the size is logged."""
RECORDS_SIZE: Final = "recordsSizeInBytes"


async def logged(
    route: Callable[[Connection, memoryview], Awaitable[Writer | None]], connection: Connection, frame: memoryview
) -> Writer | None:
    """Return the response of `route` to a request, and log the line."""
    header, position = read_request_header(frame)
    is_shown = header.api_key not in SECRET_APIS and len(frame) <= MAX_BYTES
    request = _shown(request_type(header.api_key), bytes(frame), position, header.api_version) if is_shown else ""
    loop = asyncio.get_running_loop()
    started = loop.time()
    handling = route(connection, frame)
    del frame  # the router frees it
    response = await handling
    time_ms = round(1000 * (loop.time() - started), 3)
    line = _line(header, connection, request, _response(header, response), time_ms)
    request_logger.debug("Completed request:%s", json.dumps(line, separators=(",", ":")))
    return response


def _line(header: RequestHeader, connection: Connection, request: Any, response: Any, time_ms: float) -> dict[str, Any]:
    return {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": header.api_key,
            "requestApiVersion": header.api_version,
            "correlationId": header.correlation_id,
            "clientId": header.client_id,
            "requestApiKeyName": re.sub(r"(?<!^)(?=[A-Z])", "_", APIS[header.api_key].name).upper(),
        },
        "request": request,
        "response": response,
        "connection": connection.connection_id,
        "totalTimeMs": time_ms,
        "requestQueueTimeMs": 0.0,
        "localTimeMs": time_ms,
        "remoteTimeMs": 0.0,
        "throttleTimeMs": connection.throttle_ms,
        "responseQueueTimeMs": 0.0,
        "sendTimeMs": 0.0,
        "securityProtocol": connection.security_protocol,
        "principal": connection.principal,
        "listener": connection.listener_name,
        "clientInformation": {
            "softwareName": connection.software_name,
            "softwareVersion": connection.software_version,
        },
    }


def _response(header: RequestHeader, response: Writer | None) -> Any:
    if response is None or header.api_key in SECRET_APIS or response.wire_length > MAX_BYTES:
        return ""
    data = with_blank_payloads(response)
    try:
        _, position = read_response_header(data, header.api_key, header.api_version)
    except ProtocolError:
        return ""
    return _shown(response_type(header.api_key), data, position, header.api_version)


def with_blank_payloads(response: Writer) -> bytes:
    """Return the frame with zeros for regions of files: of records only the size is logged, and reading may block.

    Other payloads are as they are: they may be fields that responses share (Metadata of many topics, configs).
    """
    blank = Writer()
    blank += response
    blank.splices = [
        (position, bytes(len(payload)) if isinstance(payload, FileRegion) else payload)
        for position, payload in response.splices
    ]
    return blank.joined()


def _shown(kind: type[Message], data: bytes, position: int, version: int) -> Any:
    """Return a message as JSON; "" if it has too many elements or cannot be read at this version."""
    try:
        message, _ = kind.read(data, position, version, MAX_ELEMENTS)
        sizes = [_pop_records(partition) for partition in _partitions(message)]
        shown = to_json(message, version)
    except (ProtocolError, ValueError, LookupError):
        return ""
    names = RECORDS_AT.get(kind.NAME)
    if names is not None:
        topics, partitions = (re.sub("_(.)", lambda found: found[1].upper(), name) for name in names)
        for partition, size in zip((each for topic in shown[topics] for each in topic[partitions]), sizes, strict=True):
            del partition["records"]
            partition[RECORDS_SIZE] = size
    return shown


def _partitions(message: Message) -> list[Any]:
    names = RECORDS_AT.get(message.NAME)
    if names is None:
        return []
    return [partition for topic in getattr(message, names[0]) for partition in getattr(topic, names[1])]


def _pop_records(partition: Any) -> int:
    size = len(partition.records) if partition.records is not None else 0
    partition.records = None
    return size
