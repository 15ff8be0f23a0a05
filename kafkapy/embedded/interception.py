"""Puts faults, and before them the record of requests, between the connections of a broker and its router."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.faults.rules import Rules
    from kafkapy.embedded.observed.requests import Recording, Requests
    from kafkapy.handlers.context import Services
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.server.broker import BrokerServer

NODE_ID_DIGITS: Final = 10
"""At most: a client's id may have more, and int() refuses thousands of them."""


@dataclass(slots=True)
class Interception:
    """The faults and the record of requests of a broker or a cluster; without either, nothing is intercepted."""

    faults: "ActingFaults | None" = None
    requests: "Requests | None" = None

    @property
    def is_used(self) -> bool:
        return self._has_faults or self._records

    def check_hit(self) -> None:
        """Raise FaultNeverHit if there is a fault that has hit nothing."""
        if self.faults is not None:
            self.faults.check_hit()

    @property
    def _has_faults(self) -> bool:
        return self.faults is not None and self.faults.is_used

    @property
    def _records(self) -> bool:
        return self.requests is not None and self.requests.is_on

    def install(self, server: "BrokerServer", node_ids: Collection[int] = ()) -> None:
        """Intercept a running broker's requests, except those of other nodes. Runs on the broker's loop."""
        faults = self.faults if self._has_faults else None
        intercept(server, faults, self.requests if self._records else None, node_ids)


def intercept(
    server: "BrokerServer", faults: "Rules | None", requests: "Recording | None", node_ids: Collection[int]
) -> None:
    """Apply faults to a running broker's requests, and record them, except those of nodes.

    `node_ids`: of the other nodes; they may change afterwards.
    """
    # With an authorizer, a broker writes its dead letters by requests to itself: these are a node's, too.
    own_id = None if server.node.authorizer.allows_everything else str(server.node_id)

    def is_node(client_id: str | None) -> bool:
        if client_id is None or not client_id.isdecimal() or len(client_id) > NODE_ID_DIGITS:
            return False
        return client_id == own_id or int(client_id) in node_ids

    def intercepted(services: "Services", route: "Route", coalesce: "Coalesce") -> "tuple[Route, Coalesce]":
        if faults is not None:
            from kafkapy.embedded.faults.injection import FaultInjector

            injector = FaultInjector(faults, services, route, coalesce, is_node)
            route, coalesce = injector.route, injector.coalesce
        if requests is not None:
            from kafkapy.embedded.observed.recorder import RequestRecorder

            recorder = RequestRecorder(requests, services, route, coalesce, is_node)
            route, coalesce = recorder.route, recorder.coalesce
        return route, coalesce

    server.intercept(intercepted)
