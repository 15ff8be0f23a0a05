"""Requests over our own connections: those that librdkafka lacks, or that must fail at once if no broker listens."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

from kafkapy.cli import command_config
from kafkapy.cli.addresses import host_port
from kafkapy.cli.client_security import security_of
from kafkapy.cli.connection import Connection
from kafkapy.console.settings import Settings
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")

MAX_KNOWN: Final = 5
"""So many brokers are tried besides those of the command line: each may take until its time-out."""
ANY: Final = "any"
"""Connections to any broker are kept apart from those to one: they may lead to another than the command line names."""
MAX_IDLE: Final = 8
"""Connections kept per broker; for more requests at once others are opened, and closed after them."""
SLOW_S: Final = 0.4
"""If a response has not begun by then, the console checks whether its broker answers at all."""
ANSWER_S: Final = 0.6
"""A broker that is slower to answer the simplest request, on a new connection, is silent. Pages show that, and wait no
longer for it: if one hangs that any request went to, and then another one, this takes SLOW_S + 2 * ANSWER_S: 1.6 s.
In a distant cluster, all of whose responses take long, the console waits for longer."""
DISTANT: Final = 5
"""A new connection with TLS and a login takes about so many times the time of a request."""
MAX_ANSWER_S: Final = 5.0
RECENT: Final = 10
"""Requests whose times say how distant the cluster is."""
FRESH_S: Final = 0.2
"""A broker that answered so recently is not checked."""
SILENT_S: Final = 2.0
"""A silent broker is not checked again before this time, so that a page waits for it once."""
AVOIDED_S: Final = 60.0
"""For so long a server that did not answer is tried after the others."""
MAX_ASKED: Final = 32
"""Brokers that are checked at the same time."""


class ClusterError(Exception):
    """The cluster did not answer, or refused a request; the message is a line for the page."""

    status: ClassVar = 502
    """The HTTP status of the page that shows it."""


class NoResponse(ClusterError):
    """A broker did not answer."""


class NotFound(ClusterError):
    """There is no such topic, group or broker."""

    status: ClassVar = 404


class BadRequest(ClusterError):
    """A field of the browser's request is wrong; nothing is sent to the cluster."""

    status: ClassVar = 400


class _Silent(TimeoutError):
    """A broker with a late response does not answer on another connection either."""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered broker, with the address for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Brokers:
    """Connections to the brokers of a cluster, used by any thread. Methods raise ClusterError."""

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.servers
        self._security = security_of({**command_config.current().librdkafka(), **(settings.properties or {})})
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, Connection]]] = {}
        """The kept connections, each with the time of its last response."""
        self._addresses: dict[int, str] = {}
        self._silent_at_s: dict[str, float] = {}
        """By server that has not answered since: when it was found silent."""
        self._taken_s: deque[float] = deque(maxlen=RECENT)
        """The times of the last requests that were answered."""
        self.cluster_id: str | None = None
        self.controller_id = -1

    @property
    def servers(self) -> str:
        """HOST:PORT,... by which the cluster is reached: those of the command line, then brokers that it has named.

        So the pages go on when the one broker stops that the console was started with. Silent ones come last.
        """
        with self._lock:
            known = list(self._addresses.values())
            avoided = {each for each, at_s in self._silent_at_s.items() if time.monotonic() - at_s < AVOIDED_S}
        own = [each.strip() for each in self._servers.split(",")]
        others = [each for each in known if each not in own]
        return ",".join(sorted([*own, *others[:MAX_KNOWN]], key=avoided.__contains__))

    def nodes(self) -> list[Node]:
        """Return the registered brokers, by id."""
        response = self.call(None, DescribeClusterRequest(), 0)
        check(response.error_code, response.error_message)
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        nodes = [Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
        with self._lock:
            self._addresses = {each.node_id: host_port(each.host, each.port) for each in nodes}
        return sorted(nodes, key=lambda each: each.node_id)

    def metadata(self, topics: Iterable[str]) -> list[Any]:
        """Return the Metadata of topics, including their errors. TopicLists has all of them."""
        requested = [MetadataRequestTopic(name=name) for name in topics]
        response = self.call(None, MetadataRequest(requested, allow_auto_topic_creation=False), 12)
        with self._lock:
            self._addresses.update({each.node_id: host_port(each.host, each.port) for each in response.brokers})
        return list(response.topics)

    def topic(self, name: str) -> Any:
        """Return the Metadata of one topic. Raises NotFound."""
        (found,) = self.metadata([name])
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise NotFound(f"There is no topic {name}.")
        check(found.error_code)
        return found

    def call(self, node_id: int | None, request: Any, version: int, timeout_s: float | None = None) -> Any:
        """Send a request to one broker; None: to any. timeout_s: other than TIMEOUT_S."""
        return self.use(node_id, lambda connection: connection.call(request, version, timeout_s))

    def use(self, node_id: int | None, ask: Callable[[Connection], T]) -> T:
        """Return the result of `ask` with a connection to one broker; None: to any.

        A connection that has ended meanwhile is opened again, once: `ask` is called again. Raises NoResponse at once
        for a broker that was found silent just now.
        """
        address = self.servers if node_id is None else self.address_of(node_id)
        if node_id is not None and self._is_silent(address):
            raise _no_response(address)
        kept_as = ANY if node_id is None else address
        _, connection = self._pop_idle(kept_as)
        if connection is not None:
            try:
                return self._use(kept_as, connection, ask)
            except _Silent:
                self._close_idle(kept_as)
                if node_id is not None:
                    raise _no_response(address) from None
            except TimeoutError as error:
                raise _no_response(connection.server, error) from error
            except (OSError, ProtocolError):
                self._close_idle(kept_as)
        try:
            return self._use(kept_as, self._connected(node_id), ask)
        except OSError as error:
            raise _no_response(address, error) from error
        except ProtocolError as error:
            raise ClusterError(f"What answers at {address} is not understood: {error}.") from error
        except KafkapyError as error:  # settings of --command-config
            raise ClusterError(str(error)) from error

    def address_of(self, node_id: int) -> str:
        """Return HOST:PORT of a broker. Raises NotFound, ClusterError."""
        if node_id not in self._addresses:
            self.nodes()
        with self._lock:
            address = self._addresses.get(node_id)
        if address is None:
            raise NotFound(f"Broker {node_id} is not there.")
        return address

    def find_silent(self, node_ids: Collection[int]) -> set[int]:
        """Return which of these brokers do not answer: all are asked at once. For a while they are asked nothing else.

        Without brokers that are not registered any more. Empty in a cluster of one broker: who else should be asked, if
        it is slow?
        """
        addresses = self._known(node_ids)
        if not addresses or len(self._addresses) < 2:
            return set()
        with ThreadPoolExecutor(min(len(addresses), MAX_ASKED)) as pool:
            answers = pool.map(self._answers, addresses.values())
            return {node_id for node_id, has_answered in zip(addresses, answers, strict=True) if not has_answered}

    def by_leader(self, topics: Iterable[Any]) -> Mapping[int, dict[str, list[int]]]:
        """Return the partitions of topics of Metadata by their leader."""
        found: dict[int, dict[str, list[int]]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    by_topic = found.setdefault(partition.leader_id, {})
                    by_topic.setdefault(topic.name, []).append(partition.partition_index)
        return found

    def close(self) -> None:
        for address in list(self._idle):
            self._close_idle(address)

    def _known(self, node_ids: Collection[int]) -> dict[int, str]:
        """Return the addresses of those of these brokers that are registered."""
        if not self._addresses.keys() >= set(node_ids):
            with suppress(ClusterError):  # requests to them will say so
                self.nodes()
        with self._lock:
            return {each: self._addresses[each] for each in node_ids if each in self._addresses}

    def _fastest_s(self) -> float:
        """Return the shortest time of the last requests."""
        with self._lock:
            return min(self._taken_s, default=0.0)

    def _answer_s(self) -> float:
        return min(max(ANSWER_S, DISTANT * self._fastest_s()), MAX_ANSWER_S)

    def _is_silent(self, address: str) -> bool:
        with self._lock:
            return time.monotonic() - self._silent_at_s.get(address, -SILENT_S) < SILENT_S

    def _set_silent(self, address: str, *, is_silent: bool) -> None:
        with self._lock:
            self._silent_at_s.pop(address, None)
            if is_silent:
                self._silent_at_s[address] = time.monotonic()

    def _answers(self, address: str) -> bool:
        """Return whether a broker answers in time; keep the connection."""
        if self._is_silent(address):
            return False
        try:
            self._keep(address, self._kept_that_answers(address) or self._connected_to(address))
        except (OSError, ValueError, KafkapyError):  # ValueError: the name cannot be that of a host
            self._set_silent(address, is_silent=True)
            return False
        self._set_silent(address, is_silent=False)
        return True

    def _kept_that_answers(self, address: str) -> Connection | None:
        """Return None if no connection is kept, or the one that is has ended. Raises TimeoutError."""
        answered_at_s, connection = self._pop_idle(address)
        if connection is None or time.monotonic() - answered_at_s < FRESH_S:
            return connection
        try:
            connection.check_answers(self._answer_s())
        except OSError as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise
            return None
        return connection

    def _connected_to(self, address: str) -> Connection:
        """Connect to a broker that answers in time. Raises OSError, KafkapyError."""
        host, _, port = address.rpartition(":")
        connection = Connection.answering(
            host.strip("[]"), int(port), security=self._security, answer_s=self._answer_s()
        )
        connection.server = address
        return self._watched(connection)

    def _connected(self, node_id: int | None) -> Connection:
        """Connect to one broker; None: to the first server that answers. Raises OSError, KafkapyError."""
        servers = self.servers if node_id is None else self.address_of(node_id)
        connection = Connection.to_any(servers, security=self._security, answer_s=self._answer_s())
        for each in servers.split(","):
            if each == connection.server:
                break
            self._set_silent(each, is_silent=True)
        self._set_silent(connection.server, is_silent=False)
        if "," in servers and not connection.has_answered:
            return connection  # no server answers in time: all may be distant, and none is better
        return self._watched(connection)

    def _watched(self, connection: Connection) -> Connection:
        """Make a slow response raise _Silent if its broker hangs, in a cluster of several: others can be tried."""

        def check() -> None:
            if len(self._addresses or self._servers.split(",")) < 2:
                return  # one broker may have two names: that of the command line, and its own
            try:
                self._connected_to(connection.server).close()
            except (OSError, KafkapyError) as error:
                self._set_silent(connection.server, is_silent=True)
                raise _Silent("timed out") from error

        connection.watch(min(max(SLOW_S, 2 * self._fastest_s()), MAX_ANSWER_S), check)
        return connection

    def _pop_idle(self, address: str) -> tuple[float, Connection | None]:
        """Return a kept connection and the time of its last response; None if none is kept to a broker that answers."""
        with self._lock:
            idle = self._idle.get(address, [])
            while idle:
                answered_at_s, connection = idle.pop()
                if connection.server not in self._silent_at_s or address != ANY:
                    return answered_at_s, connection
                connection.close()
        return 0, None

    def _close_idle(self, address: str) -> None:
        with self._lock:
            idle = self._idle.pop(address, [])
        for _, each in idle:
            each.close()

    def _use(self, address: str, connection: Connection, ask: Callable[[Connection], T]) -> T:
        begun_s = time.monotonic()
        try:
            response = ask(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._taken_s.append(time.monotonic() - begun_s)
        self._keep(address, connection)
        return response

    def _keep(self, address: str, connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < MAX_IDLE:
                idle.append((time.monotonic(), connection))
                return
        connection.close()


def _no_response(address: str, error: OSError | None = None) -> NoResponse:
    reason = "timed out" if error is None else error.strerror or error
    return NoResponse(f"No broker answers at {address}: {reason}.")


def check(code: int, message: str | None = None) -> None:
    """Raise ClusterError for an error code."""
    if code:
        name = ErrorCode(code).name
        raise ClusterError(f"{message} ({name})" if message else f"{ErrorCode(code).message} ({name})")
