"""Turns a request frame into its response frame: read the header, check the version, decode, handle, encode.

The reactor calls `route` with each frame and drives the coroutine, without a Task until a handler waits. A request that
cannot be read or is not served raises ProtocolError, which closes the connection, as in Apache Kafka. The only
exception is ApiVersions at an unknown version, which is answered in version 0.
"""

from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.handlers.context import Connection, ControllerServices, RequestContext, Services
from kafkapy.handlers.parts import Handler, Prepare
from kafkapy.handlers.table import (
    BROKER_APIS,
    CONTROLLER_APIS,
    FORWARDED_APIS,
    ServedApi,
)
from kafkapy.protocol.api import API_VERSIONS, APIS, message_type, request_type, response_type
from kafkapy.protocol.element_budget import ElementBudget
from kafkapy.protocol.headers import RequestHeader, read_request_header
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import Served
from kafkapy.runtime.decoded_requests import FEW_BYTES, FEW_ELEMENTS, Room
from kafkapy.serving.large_requests import LARGE_FRAME_BYTES, LargeRequests, Undecoded
from kafkapy.serving.request_logger import request_logger
from kafkapy.serving.responses import encode, error_response

if TYPE_CHECKING:
    from kafkapy.handlers.data.small_produces import SmallProduces
    from kafkapy.handlers.node_refusals import NodeRefusals
    from kafkapy.serving.quotas import Meter

Route = tuple[Any, Handler, Prepare | None, bool]
"""Request class, handler, what prepares a large request for parts, and whether a decoded request needs its frame."""
PRODUCE, FETCH = 0, 1
VOTING_APIS = range(52, 55)
"""Vote, BeginQuorumEpoch and EndQuorumEpoch: their error is that of their one partition."""
NO_FRAME = memoryview(b"")
"""Replaces a frame that is not needed any more. (mypyc deletes no variable of a coroutine.)"""


class Router:
    """Serves the APIs of a table. Handlers and their messages are imported at the first request."""

    def __init__(self, services: Services | ControllerServices | None = None) -> None:
        self._routes: dict[int, Route] = {}
        self._small_produces: SmallProduces | None = None
        self._is_controller = False
        self._refusals: NodeRefusals | None = None
        """Logs what a controller refuses to other nodes; made for the first one."""
        self.on_response: Callable[[int, Any], None] | None = None
        """Called with the API key and the response of each request; set once, if responses are counted."""
        if services is not None:
            self.serve(services)

    def serve(self, services: Services | ControllerServices) -> None:
        """Set the services that handlers use. Call once, before the first request; listeners are bound earlier."""
        self._services: Any = services
        self._apis = services.apis
        if services.apis is BROKER_APIS and services.telemetry is None:
            self._apis = {key: served for key, served in services.apis.items() if not served.is_telemetry}
        self._forwarded = FORWARDED_APIS if services.apis is BROKER_APIS else frozenset()
        self._serves_legacy = services.apis is BROKER_APIS and services.config.node.serves_removed_versions
        if services.apis is BROKER_APIS and services.config.node.kafkapy_imitated_release is not None:
            from kafkapy.handlers.imitated import narrowed

            self._apis = narrowed(self._apis, services.config.node.kafkapy_imitated_release)
        self._large = LargeRequests(services)
        self._is_controller = services.apis is CONTROLLER_APIS

    def route(
        self, connection: Connection, frame: memoryview, *, is_logged: bool = False, meter: "Meter | None" = None
    ) -> Coroutine[Any, Any, Writer | None]:
        """Return the response to a request frame (without size prefix), or None if it has none (Produce with acks=0).

        The result is to be awaited. is_logged: the caller writes the line for kafka.request.logger. meter: the caller
        counts the request for its client's quotas; if None, this method checks whether the client has any. Raises
        ProtocolError.
        """
        if request_logger.is_on and not is_logged and meter is None:
            return self._log(connection, frame)
        header, position = read_request_header(frame)
        quotas = self._services.client_quotas
        if quotas is not None and meter is None and quotas.has_quota(connection.principal, header.client_id):
            return self._metered(connection, header, frame)
        served = self._apis.get(header.api_key)
        if served is None:
            raise ProtocolError(f"api key {header.api_key} is not served here")
        if connection.parked_fetch is not None and header.api_key != FETCH:
            connection.end_parked_fetch()
        if header.api_key in self._forwarded and not self._services.active_controller.is_local:
            return self._forward(header, served, connection, frame, position, meter, is_logged)
        return self._serve(header, served, connection, frame, position, meter, is_logged)

    async def _serve(
        self,
        header: RequestHeader,
        served: ServedApi,
        connection: Connection,
        frame: memoryview,
        position: int,
        meter: "Meter | None",
        is_logged: bool,
    ) -> Writer | None:
        """Decode a request, wait for room if it has many elements, call its handler and encode the response."""
        # One piece, as each coroutine more costs every request a hundredth.
        if not served.served_min <= header.api_version <= served.max_version:
            route = self._load_legacy(served, header.api_version)
            if route is None:
                return self._refuse_version(header)
        else:
            route = self._routes.get(header.api_key) or self._load(served)
        request_class, handler, prepare, needs_frame = route
        context = RequestContext(header, connection) if meter is None else meter.new_context()
        room: Room | None = None
        undecoded: Undecoded | None
        try:
            try:
                if (frame_bytes := len(frame)) < LARGE_FRAME_BYTES or header.api_key == PRODUCE:
                    budget = ElementBudget(served.max_elements)
                    request, _ = request_class.read_within(frame, position, header.api_version, budget)
                    elements = served.max_elements - budget.left
                    if elements > FEW_ELEMENTS or (frame_bytes > FEW_BYTES and not needs_frame):
                        if needs_frame:
                            frame_bytes = 0  # counted as a frame
                        room = self._large.acquire_room(context, request, elements, frame_bytes)
                        if room is None:
                            request = None  # decoded again later: it takes no memory while it waits
                            undecoded = Undecoded(request_class, frame, position, header.api_version, elements)
                            request, room = await self._large.read_small(context, undecoded)
                            undecoded = None
                    frame = NO_FRAME
                    connection.is_frame_free = not needs_frame and not is_logged
                    response = await handler(self._services, context, request)
                else:
                    undecoded = Undecoded(request_class, frame, position, header.api_version, served.max_elements)
                    request, room = await self._large.read(context, undecoded)
                    frame, undecoded = NO_FRAME, None
                    connection.is_frame_free = not needs_frame and not is_logged
                    response = await self._large.handle(handler, served.parts, prepare, context, request)
            except ApiError as error:
                response = error_response(header, error)
            if meter is not None:
                response = meter.charge(response)
            if response is None:
                return None
            if self.on_response is not None or self._is_controller:
                self._on_response(header, connection, response)
            if context.is_long:
                return await self._large.write(context, header, response)
            return encode(header, response)
        finally:
            if room is not None:
                room.release()

    def _on_response(self, header: RequestHeader, connection: Connection, response: Any) -> None:
        """Count a response if responses are counted; log what a controller refuses to another node."""
        if self.on_response is not None:
            self.on_response(header.api_key, response)
        if self._is_controller and not connection.is_forwarded:
            self._log_refusal(header, connection, response)

    def _log_refusal(self, header: RequestHeader, connection: Connection, response: Any) -> None:
        """Log an error that a controller answers, if it is about the node that sent the request."""
        if not getattr(response, "error_code", 0) and header.api_key not in VOTING_APIS:
            return
        if self._refusals is None:
            from kafkapy.handlers.node_refusals import NodeRefusals

            self._refusals = NodeRefusals(self._services.clock)
        self._refusals.on_response(header, connection, response)

    def coalesce(self, connection: Connection, data: bytes, position: int, most: int) -> Served | None:
        """Serve consecutive Produce requests of a connection together; None if the first one must go to `route`.

        Implements protocol.serving.Coalesce.
        """
        if request_logger.is_on:
            return None
        small_produces = self._small_produces
        if small_produces is None:
            from kafkapy.handlers.data.small_produces import LAST_VERSION, SmallProduces

            last_version = min(self._apis[PRODUCE].max_version, LAST_VERSION)
            self._small_produces = small_produces = SmallProduces(self._services, last_version)
        return small_produces.serve(connection, data, position, most)

    async def _log(self, connection: Connection, frame: memoryview) -> Writer | None:
        from kafkapy.serving.request_log import logged  # most brokers never have one

        logging = logged(partial(self.route, is_logged=True), connection, frame)
        frame = NO_FRAME
        return await logging

    async def _forward(
        self,
        header: RequestHeader,
        served: ServedApi,
        connection: Connection,
        frame: memoryview,
        position: int,
        meter: "Meter | None",
        is_logged: bool,
    ) -> Writer | None:
        """Return the active controller's response, or this node's if it has become the active controller.

        If no controller answers, that error is the request's, or that of each topic, ACL, entity or user in it. A
        request at a version that is not served here is refused, not forwarded.
        """
        if not served.served_min <= header.api_version <= served.max_version:
            return self._refuse_version(header)
        from kafkapy.handlers.forwarding import forward

        router = self
        try:
            forwarded = await forward(self._services, RequestContext(header, connection), frame)
        except ApiError as error:
            if "error_code" in response_type(header.api_key).field_names():
                response = error_response(header, error)
                return encode(header, response if meter is None else meter.charge(response))
            forwarded, router = None, self._without_controller(error)
        if forwarded is None:
            serving = router._serve(header, served, connection, frame, position, meter, is_logged)
            frame = NO_FRAME  # `serving` frees the one that it has
            return await serving
        if meter is not None:
            meter.charge_forwarded(forwarded)
        return forwarded

    def _without_controller(self, error: ApiError) -> "Router":
        """Return a router whose handlers fail to change the metadata: they put the error where their API has room."""
        from kafkapy.handlers.forwarding import NoController

        without = copy(self._services)
        without.metadata_changes = NoController(error)
        return Router(without)

    async def _metered(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Writer | None:
        from kafkapy.serving.quotas import Meter  # most brokers have no quotas

        meter = Meter(self._services, header, connection, len(frame))
        await meter.await_throttle()
        handling = self.route(connection, frame, meter=meter)
        frame = NO_FRAME  # `handling` frees the one that it has
        return await meter.drive(handling)

    def _load(self, served: ServedApi) -> Route:
        module = import_module(f"kafkapy.{served.handler}")
        api_key = served.api_key
        needs_frame = api_key == PRODUCE or not served.is_counted
        prepare = module.prepare if served.parts is not None and served.parts.is_prepared else None
        route = (request_type(api_key), module.handle, prepare, needs_frame)
        self._routes[api_key] = route
        return route

    def _load_legacy(self, served: ServedApi, version: int) -> Route | None:
        """Return the route for a version that Kafka 4 removed, or None if it is not served."""
        if not self._serves_legacy or not served.has_legacy or not 0 <= version < served.served_min:
            return None
        handler: Handler = import_module(f"kafkapy.handlers.legacy.{served.handler.rpartition('.')[2]}").handle
        needs_frame = served.api_key == PRODUCE
        return message_type(f"Legacy{APIS[served.api_key].request_name}"), handler, None, needs_frame

    def _refuse_version(self, header: RequestHeader) -> Writer:
        if header.api_key != API_VERSIONS:
            raise ProtocolError(f"version {header.api_version} of api key {header.api_key} is not served here")
        from kafkapy.handlers.cluster.api_versions import unsupported_version_response

        return encode(replace(header, api_version=0), unsupported_version_response(self._apis[API_VERSIONS]))
