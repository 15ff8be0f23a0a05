"""What stands between the connections of a broker and its router: faults, and before them the record of requests."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.observed.requests import Requests
    from kafkapy.handlers.context import Services
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.server.broker import BrokerServer


@dataclass(slots=True)
class Interception:
    """Of a broker, or of all brokers of a cluster; nothing stands there as long as neither is used."""

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
        """Let a running broker's requests meet what is used, except those of other nodes. Runs on the broker's loop."""
        names = {str(node_id) for node_id in node_ids}

        def is_node(client_id: str | None) -> bool:
            return client_id in names

        def intercepted(services: "Services", route: "Route", coalesce: "Coalesce") -> "tuple[Route, Coalesce]":
            if self._has_faults:
                from kafkapy.embedded.faults.injection import FaultInjector

                assert self.faults is not None
                injector = FaultInjector(self.faults, services, route, coalesce, is_node)
                route, coalesce = injector.route, injector.coalesce
            if self._records:
                from kafkapy.embedded.observed.recorder import RequestRecorder

                assert self.requests is not None
                recorder = RequestRecorder(self.requests, services, route, coalesce, is_node)
                route, coalesce = recorder.route, recorder.coalesce
            return route, coalesce

        server.intercept(intercepted)
