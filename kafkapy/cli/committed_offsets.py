"""Requests to the coordinator of a group over connections of our own, and the committed offsets by them.

Not librdkafka's list_consumer_group_offsets: answered COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, as by a node that
is restarted, it dereferences NULL, and the process ends by SIGSEGV (librdkafka 2.16.0, its issue 5040). Its other
requests to coordinators end the process, too, if a response is too late: consumer_groups.py has them.

Versions: FindCoordinator 1 and OffsetFetch 2, the oldest with key types and with all partitions of a group;
OffsetDelete 0.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from kafkapy.cli.client_security import security_of
from kafkapy.cli.connection import Connection, LoginRefusedError
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.reachable import host_and_port
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest

T = TypeVar("T")
Partition = tuple[str, int]

GROUP_KEY_TYPE: Final = 0
RETRY_S: Final = 0.1
"""retry.backoff.ms of Kafka's clients."""
RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

NO_SUCH_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of a coordinator that has no group with the id and of the type that a request describes."""


class CoordinatorError(KafkapyError):
    """The coordinator did not answer, or refused with an error code; the message is one line."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be served soon: the coordinator is being loaded, or is another broker by now."""
        return self.code in RETRIED


class NoResponseError(CoordinatorError):
    """A broker did not answer: another one may be the coordinator soon.

    may_be_done: whether the broker may have received the request, and have done what it asks.
    """

    def __init__(self, message: str, *, may_be_done: bool = True) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done

    @property
    def is_passing(self) -> bool:
        return True


class BrokerCalls(Protocol):
    """Requests to the brokers of a cluster."""

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Return the response of one broker; None: of any. Raises NoResponseError."""


def of_each_broker(brokers: BrokerCalls, ask: Callable[[int], T]) -> tuple[dict[int, T], "list[CoordinatorError]"]:
    """Return the results of ask(node id) for the brokers of the cluster, and the errors of those that failed.

    Raises CoordinatorError if no broker lists the others.
    """
    metadata = brokers.call(None, MetadataRequest(topics=[], allow_auto_topic_creation=False), 5)
    found: dict[int, T] = {}
    errors: list[CoordinatorError] = []
    for broker in metadata.brokers:
        try:
            found[broker.node_id] = ask(broker.node_id)
        except CoordinatorError as error:
            errors.append(error)
    return found, errors


def ask_coordinator(brokers: BrokerCalls, group_id: str, ask: Callable[[Any], T], timeout_s: float = TIMEOUT_S) -> T:
    """Return the result of `ask`, which takes FindCoordinator's response. Raises CoordinatorError.

    While the group's coordinator moves, or does not answer, it is looked for and asked again: for at most timeout_s.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found = brokers.call(None, FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE), 1)
            check(found.error_code, found.error_message)
            return ask(found)
        except CoordinatorError as error:
            if not error.is_passing or time.monotonic() >= deadline_s:
                raise
        time.sleep(RETRY_S)


def committed_offsets(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> dict[Partition, int]:
    """Return the committed offset of each partition that has one. Raises CoordinatorError.

    timeout_s: how long a coordinator that moves is looked for.
    """
    return ask_coordinator(
        brokers, group_id, lambda coordinator: offsets_at(brokers, coordinator.node_id, group_id), timeout_s
    )


def offsets_at(brokers: BrokerCalls, node_id: int, group_id: str) -> dict[Partition, int]:
    """Like committed_offsets, of this coordinator. Raises CoordinatorError."""
    found = brokers.call(node_id, OffsetFetchRequest(group_id, topics=None), 2)
    check(found.error_code, None)
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
        if each.committed_offset >= 0 and not each.error_code
    }


def described_by(brokers: BrokerCalls, node_id: int, request: Any, version: int) -> Any | None:
    """Return the group in the response to a request that describes one; None if there is none of the request's type.

    Raises CoordinatorError.
    """
    try:
        (group,) = brokers.call(node_id, request, version).groups
    except NoResponseError:
        return None  # it may have ended the connection because it does not know the API
    if group.error_code in NO_SUCH_GROUP:
        return None
    check(group.error_code, group.error_message)
    return group


def delete_offsets(brokers: BrokerCalls, group_id: str, topics: Iterable[str]) -> None:
    """Delete a group's committed offsets of topics; brokers refuse topics that its members read.

    Raises CoordinatorError, also for a topic of which nothing is committed.
    """
    committed = committed_offsets(brokers, group_id)
    requested = []
    for name in topics:
        numbers = sorted(number for topic, number in committed if topic == name)
        if not numbers:
            raise CoordinatorError(f"{name}: the group has committed nothing of it")
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        requested.append(OffsetDeleteRequestTopic(name, partitions=partitions))

    def ask(coordinator: Any) -> None:
        response = brokers.call(coordinator.node_id, OffsetDeleteRequest(group_id, topics=requested), 0)
        check(response.error_code, None)
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, None)

    ask_coordinator(brokers, group_id, ask)


def check(code: int, message: str | None, what: str = "") -> None:
    """Raise CoordinatorError if the code is one of an error."""
    if code:
        error = ErrorCode(code)
        raise CoordinatorError(f"{what}{message or error.message} ({error.name})", error)


class BrokerConnections:
    """BrokerCalls with librdkafka's properties, over one connection per broker; a context manager."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        servers = filter(None, map(str.strip, str(properties["bootstrap.servers"]).split(",")))
        self._servers = ",".join("{}:{}".format(*host_and_port(server)) for server in servers)
        self._security = security_of(properties)
        self._connections: dict[str, Connection] = {}
        self._addresses: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Return the response of one broker; None: of any. Raises CoordinatorError, CommandConfigError."""
        address = self._servers if node_id is None else self._address(node_id)
        is_connected = address in self._connections
        try:
            if not is_connected:
                self._connections[address] = Connection.to_any(address, security=self._security)
                is_connected = True
            return self._connections[address].call(request, version)
        except LoginRefusedError as error:
            raise CoordinatorError(f"{address}: {error}") from error
        except OSError as error:
            self._drop(address)
            message = f"no broker answers at {address}: {error.strerror or error}"
            raise NoResponseError(message, may_be_done=is_connected) from error
        except ProtocolError as error:
            self._drop(address)
            message = f"what answers at {address} is not understood: {error}"
            raise NoResponseError(message, may_be_done=is_connected) from error

    def _drop(self, address: str) -> None:
        """Close a connection that failed, and forget its address: the broker may have another one by now."""
        self._addresses = {node_id: each for node_id, each in self._addresses.items() if each != address}
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _address(self, node_id: int) -> str:
        """Return HOST:PORT of a broker. Raises NoResponseError: the request that needs it was not sent."""
        if node_id not in self._addresses:
            try:
                response = self.call(None, MetadataRequest(topics=[], allow_auto_topic_creation=False), 5)
            except NoResponseError as error:
                raise NoResponseError(str(error), may_be_done=False) from error
            self._addresses = {each.node_id: f"{each.host}:{each.port}" for each in response.brokers}
        if node_id not in self._addresses:
            raise NoResponseError(f"broker {node_id} is not there", may_be_done=False)
        return self._addresses[node_id]
