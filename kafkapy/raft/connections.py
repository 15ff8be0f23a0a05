"""The requests of a RaftCore to other nodes, and the list that its effects are added to."""

from collections.abc import Iterator

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.raft.config import FOREVER_MS, RaftConfig
from kafkapy.raft.effects import SendRequest
from kafkapy.raft.messages import Request
from kafkapy.raft.voters import Endpoint


class Outbox:
    """Effects of the current step, in order."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def pop(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


@dataclass(slots=True)
class ConnectionState:
    """The requests to one peer: at most one in flight, and a back-off after a failure."""

    request_id: int = -1
    request: Request | None = None
    deadline_ms: int = FOREVER_MS
    backoff_until_ms: int = 0


class Connections:
    """The connections used in the current role, by node id (negative for bootstrap servers)."""

    def __init__(self, config: RaftConfig, outbox: Outbox) -> None:
        self._config = config
        self._out = outbox
        self._by_node: dict[int, ConnectionState] = {}
        self._next_request_id = 0

    def __getitem__(self, node_id: int) -> ConnectionState:
        return self._by_node[node_id]

    def get(self, node_id: int) -> ConnectionState | None:
        return self._by_node.get(node_id)

    def items(self) -> Iterator[tuple[int, ConnectionState]]:
        return iter(self._by_node.items())

    def next_due_ms(self, *, after_ms: int, latest_ms: int) -> int:
        """Return when the next request times out or back-off ends after `after_ms`, or latest_ms if that is earlier."""
        earliest_ms = latest_ms
        for connection in self._by_node.values():
            due_ms = connection.deadline_ms if connection.request is not None else connection.backoff_until_ms
            if after_ms < due_ms < earliest_ms:
                earliest_ms = due_ms
        return earliest_ms

    @property
    def has_request_in_flight(self) -> bool:
        return any(connection.request is not None for connection in self._by_node.values())

    def is_in_back_off(self, node_id: int, now_ms: int) -> bool:
        connection = self._by_node.get(node_id)
        return connection is not None and now_ms < connection.backoff_until_ms

    def maybe_send(self, node_id: int, request: Request, endpoints: tuple[Endpoint, ...], now_ms: int) -> bool:
        """Send unless a request to that node is in flight or it is in back-off; return whether it was sent."""
        connection = self._by_node.setdefault(node_id, ConnectionState())
        if connection.request is not None or now_ms < connection.backoff_until_ms:
            return False
        self._next_request_id += 1
        connection.request_id = self._next_request_id
        connection.request = request
        connection.deadline_ms = now_ms + self._config.request_timeout_ms
        self._out.emit(SendRequest(node_id, connection.request_id, request, endpoints))
        return True

    def complete(self, node_id: int, request_id: int) -> Request | None:
        """Return the request that was in flight, or None if the response is to an older one and must be ignored."""
        connection = self._by_node.get(node_id)
        if connection is None or connection.request_id != request_id:
            return None
        request, connection.request = connection.request, None
        connection.deadline_ms = FOREVER_MS
        return request

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._by_node[node_id] = ConnectionState(backoff_until_ms=now_ms + self._config.retry_backoff_ms)

    def pause(self, node_id: int, until_ms: int) -> None:
        """Send a node nothing more until then. A request that is in flight goes on."""
        connection = self._by_node.setdefault(node_id, ConnectionState())
        connection.backoff_until_ms = max(connection.backoff_until_ms, until_ms)

    def expire(self, now_ms: int) -> None:
        """Give up the requests that have timed out."""
        for node_id, connection in list(self._by_node.items()):
            if connection.request is not None and now_ms >= connection.deadline_ms:
                self.back_off(node_id, now_ms)

    def forget_all(self) -> None:
        """Ignore the responses to all requests in flight, and end all back-offs: the role has changed."""
        self._by_node.clear()
