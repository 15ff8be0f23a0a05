"""Stands before a broker's router while `broker.requests` is on; records requests and the errors of responses."""

import time
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.embedded.faults.shapes import Selected
from kafkapy.embedded.faults.whole_requests import WholeRequests, is_readable
from kafkapy.embedded.observed.requests import Recording, Request
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, read_request_header, read_response_header
from kafkapy.protocol.primitives import MessageStruct, Writer
from kafkapy.protocol.serving import Coalesce, ConnectionInfo, Route, Served
from kafkapy.serving.request_log import with_blank_payloads
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services

ERROR_FIELDS: Final = ("error_code", "partition_error_code", "acknowledge_error_code")
"""The fields of responses with errors. A topic with a topic_config_error_code was created."""
MAX_BYTES: Final = 16 << 20
"""The largest request or response that is decoded; of a larger one only API and client are recorded."""
MAX_ELEMENTS: Final = 100_000
"""The most elements that are decoded: as many as a broker accepts in a request."""


@dataclass(slots=True, frozen=True)
class _About:
    """The topics, groups and transactions of a request."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()


class RequestRecorder:
    """Stands for a router: it has its methods `route` and `coalesce`."""

    def __init__(
        self,
        requests: Recording,
        services: "Services",
        route: Route,
        coalesce: Coalesce,
        is_node: Callable[[str | None], bool],
    ) -> None:
        """is_node: whether a client id is a node's, which is not recorded."""
        self._requests = requests
        self._whole = WholeRequests(services)
        self._route = route
        self._coalesce = coalesce
        self._is_node = is_node

    def coalesce(self, info: ConnectionInfo, data: bytes, position: int, most: int) -> Served | None:
        """Serve Produce requests together, unless they are recorded."""
        return None if self._requests.is_on else self._coalesce(info, data, position, most)

    def route(self, info: ConnectionInfo, frame: memoryview) -> Coroutine[Any, Any, Writer | None]:
        """Like Router.route."""
        header, position = read_request_header(frame)
        if not self._requests.is_on or self._is_node(header.client_id):
            return self._route(info, frame)
        return self._recorded(header, info, frame, position)

    async def _recorded(
        self, header: RequestHeader, info: ConnectionInfo, frame: memoryview, position: int
    ) -> Writer | None:
        about = self._about(header, frame, position)
        began = time.perf_counter()
        errors: tuple[str, ...] = ()
        is_answered = False
        try:
            response = await self._route(info, frame)
            is_answered, errors = True, _errors(header, response)
        finally:
            self._requests.add(
                Request(
                    api=APIS[header.api_key].name,
                    version=header.api_version,
                    client_id=header.client_id,
                    principal=info.principal,
                    connection=f"{info.peer_host}:{info.peer_port}",
                    partitions=about.partitions,
                    topics=about.topics,
                    groups=about.groups,
                    transactional_ids=about.transactional_ids,
                    errors=errors,
                    is_answered=is_answered,
                    ms=1000 * (time.perf_counter() - began),
                )
            )
        return response

    def _about(self, header: RequestHeader, frame: memoryview, position: int) -> _About:
        if not is_readable(header) or len(frame) > MAX_BYTES:
            return _About()
        try:
            request, _ = request_type(header.api_key).read(frame, position, header.api_version, MAX_ELEMENTS)
        except ProtocolError:  # the router refuses it
            return _About()
        return _about(self._whole.parts(header, request))


def _about(parts: list[Selected]) -> _About:
    def named(selector: str) -> tuple[str, ...]:
        return _shared(tuple(dict.fromkeys(str(part[selector]) for part in parts if part.get(selector))))

    partitions = [
        TopicPartition(str(part["topic"]), int(part["partition"]))
        for part in parts
        if part.get("topic") and part.get("partition") is not None
    ]
    return _About(_shared(tuple(dict.fromkeys(partitions))), named("topic"), named("group"), named("transactional_id"))


@lru_cache(256)
def _shared(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return one tuple for all equal ones, to save memory: all Fetches of a session are about the same partitions."""
    return names


def _errors(header: RequestHeader, encoded: Writer | None) -> tuple[str, ...]:
    """Return the names of the errors in a response, each once."""
    if encoded is None or encoded.wire_length > MAX_BYTES or not is_readable(header):
        return ()
    data = with_blank_payloads(encoded)
    try:
        _, position = read_response_header(data, header.api_key, header.api_version)
        response, _ = response_type(header.api_key).read(data, position, header.api_version, MAX_ELEMENTS)
    except ProtocolError:
        return ()
    return tuple(dict.fromkeys(_error_names(response)))


def _error_names(part: MessageStruct) -> Iterator[str]:
    for name in part.field_names():
        value = getattr(part, name)
        if name in ERROR_FIELDS:
            if value:
                yield ErrorCode(value).name
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, MessageStruct):
                    yield from _error_names(each)
