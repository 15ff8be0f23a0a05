"""Requests over our own connections: those that librdkafka lacks, or that must fail at once if no broker listens."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from kafkapy.cli import command_config
from kafkapy.cli.client_security import security_of
from kafkapy.cli.connection import Connection
from kafkapy.console.settings import Settings
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")

MAX_IDLE: Final = 8
"""Connections kept per broker; more are opened for requests at once, and closed."""


class ClusterError(Exception):
    """The cluster did not answer, or refused; the message is a line for the page."""

    status: ClassVar = 502
    """Of the page that shows it."""


class NoResponse(ClusterError):
    """A broker did not answer."""


class NotFound(ClusterError):
    """There is no such topic, group or broker."""

    status: ClassVar = 404


class BadRequest(ClusterError):
    """A field of the browser's request is wrong; nothing is sent to the cluster."""

    status: ClassVar = 400


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients find it."""

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
        self._idle: dict[str, list[Connection]] = {}
        self._addresses: dict[int, str] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def nodes(self) -> list[Node]:
        """Return the registered brokers, by id."""
        response = self.call(None, DescribeClusterRequest(), 0)
        check(response.error_code, response.error_message)
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        nodes = [Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
        with self._lock:
            self._addresses = {each.node_id: f"{each.host}:{each.port}" for each in nodes}
        return sorted(nodes, key=lambda each: each.node_id)

    def metadata(self, topics: Iterable[str]) -> list[Any]:
        """Return the Metadata of topics, including their errors. TopicLists has all of them."""
        requested = [MetadataRequestTopic(name=name) for name in topics]
        response = self.call(None, MetadataRequest(requested, allow_auto_topic_creation=False), 12)
        with self._lock:
            self._addresses.update({each.node_id: f"{each.host}:{each.port}" for each in response.brokers})
        return list(response.topics)

    def topic(self, name: str) -> Any:
        """Return the Metadata of one topic. Raises NotFound."""
        (found,) = self.metadata([name])
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise NotFound(f"There is no topic {name}.")
        check(found.error_code)
        return found

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Send a request to one broker; None: to any."""
        return self.use(node_id, lambda connection: connection.call(request, version))

    def use(self, node_id: int | None, ask: Callable[[Connection], T]) -> T:
        """Return what `ask` gets from one broker; None: from any.

        A connection that has ended meanwhile is opened anew, once: `ask` is called again.
        """
        address = self._address(node_id)
        connection = self._pop_idle(address)
        if connection is not None:
            try:
                return self._use(address, connection, ask)
            except (OSError, ProtocolError):
                self._close_idle(address)
        try:
            return self._use(address, Connection.to_any(address, security=self._security), ask)
        except OSError as error:
            raise NoResponse(f"No broker answers at {address}: {error.strerror or error}.") from error
        except ProtocolError as error:
            raise ClusterError(f"What answers at {address} is not understood: {error}.") from error
        except KafkapyError as error:  # settings of --command-config
            raise ClusterError(str(error)) from error

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

    def _address(self, node_id: int | None) -> str:
        if node_id is None:
            return self._servers
        if node_id not in self._addresses:
            self.nodes()
        with self._lock:
            address = self._addresses.get(node_id)
        if address is None:
            raise NotFound(f"Broker {node_id} is not there.")
        return address

    def _pop_idle(self, address: str) -> Connection | None:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None

    def _close_idle(self, address: str) -> None:
        with self._lock:
            idle = self._idle.pop(address, [])
        for each in idle:
            each.close()

    def _use(self, address: str, connection: Connection, ask: Callable[[Connection], T]) -> T:
        try:
            response = ask(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < MAX_IDLE:
                idle.append(connection)
                return response
        connection.close()
        return response


def check(code: int, message: str | None = None) -> None:
    """Raise ClusterError for an error code."""
    if code:
        name = ErrorCode(code).name
        raise ClusterError(f"{message} ({name})" if message else f"{ErrorCode(code).message} ({name})")
