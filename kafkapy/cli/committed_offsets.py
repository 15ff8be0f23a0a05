"""The committed offsets of a group, fetched from its coordinator over connections of our own.

Not librdkafka's list_consumer_group_offsets: answered COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, as by a node that
is restarted, it dereferences NULL, and the process ends by SIGSEGV (librdkafka 2.16.0, its issue 5040). Its other
requests to coordinators, describe, delete and alter offsets, report these errors.

Versions: FindCoordinator 1 and OffsetFetch 2, the oldest with key types and with all partitions of a group;
OffsetDelete 0.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
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
    """The coordinator did not answer, or refused; the message is one line."""


class NoResponseError(CoordinatorError):
    """A broker did not answer: another one may be the coordinator soon."""


class BrokerCalls(Protocol):
    """Requests to the brokers of a cluster."""

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Return the response of one broker; None: of any. Raises NoResponseError."""


def of_each_broker(brokers: BrokerCalls, ask: Callable[[int], T]) -> tuple[dict[int, T], "list[CoordinatorError]"]:
    """Return what ask(node id) returns for each broker of the cluster, and the errors that it raises instead.

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


def committed_offsets(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> dict[tuple[str, int], int]:
    """Return the committed offset of each partition that has one. Raises CoordinatorError.

    While the group's coordinator moves, it is looked for again and again, for at most timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = _ask(brokers, group_id)
            if found.error_code not in RETRIED or time.monotonic() >= deadline:
                check(found.error_code, getattr(found, "error_message", None))
                break
        except NoResponseError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_S)
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
        if each.committed_offset >= 0 and not each.error_code
    }


def coordinator_of(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Return FindCoordinator's response; one that is not available is looked for again. Raises CoordinatorError."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = brokers.call(None, FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE), 1)
        if found.error_code not in RETRIED or time.monotonic() >= deadline:
            check(found.error_code, getattr(found, "error_message", None))
            return found
        time.sleep(RETRY_S)


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
    coordinator = coordinator_of(brokers, group_id)
    response = brokers.call(coordinator.node_id, OffsetDeleteRequest(group_id, topics=requested), 0)
    check(response.error_code, None)
    for topic in response.topics:
        for each in topic.partitions:
            check(each.error_code, None)


def _ask(brokers: BrokerCalls, group_id: str) -> Any:
    """Return the response to OffsetFetch, or to FindCoordinator if that has an error. Raises NoResponseError."""
    found = brokers.call(None, FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE), 1)
    if found.error_code:
        return found
    return brokers.call(found.node_id, OffsetFetchRequest(group_id, topics=None), 2)


def check(code: int, message: str | None, what: str = "") -> None:
    """Raise CoordinatorError if the code is one of an error."""
    if code:
        error = ErrorCode(code)
        raise CoordinatorError(f"{what}{message or error.message} ({error.name})")


class BrokerConnections:
    """BrokerCalls with librdkafka's properties, over one connection per broker; a context manager."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        servers = filter(None, map(str.strip, str(properties["bootstrap.servers"]).split(",")))
        self._servers = ",".join("{}:{}".format(*host_and_port(server)) for server in servers)
        self._security = security_of(properties)
        self._stack = ExitStack()
        self._connections: dict[str, Connection] = {}
        self._addresses: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """Return the response of one broker; None: of any. Raises CoordinatorError, CommandConfigError."""
        address = self._servers if node_id is None else self._address(node_id)
        try:
            if address not in self._connections:
                connection = Connection.to_any(address, security=self._security)
                self._connections[address] = self._stack.enter_context(connection)
            return self._connections[address].call(request, version)
        except LoginRefusedError as error:
            raise CoordinatorError(f"{address}: {error}") from error
        except OSError as error:
            self._connections.pop(address, None)
            raise NoResponseError(f"no broker answers at {address}: {error.strerror or error}") from error
        except ProtocolError as error:
            self._connections.pop(address, None)
            raise NoResponseError(f"what answers at {address} is not understood: {error}") from error

    def _address(self, node_id: int) -> str:
        if node_id not in self._addresses:
            response = self.call(None, MetadataRequest(topics=[], allow_auto_topic_creation=False), 5)
            self._addresses = {each.node_id: f"{each.host}:{each.port}" for each in response.brokers}
        if node_id not in self._addresses:
            raise NoResponseError(f"broker {node_id} is not there")
        return self._addresses[node_id]
