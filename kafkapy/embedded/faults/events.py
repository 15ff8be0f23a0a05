"""The events of `ActingFaults` as functions of one broker, which do what they say by the broker's own code.

They run in the process of the broker; `EVENTS` has them by name. An event that belongs to another broker raises
NotHere, and is then tried at the next one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkapy.embedded.faults.rules import FaultError
from kafkapy.errors import ApiError, first_of, quoted, unknown
from kafkapy.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkapy.group.shard import GroupShard
    from kafkapy.handlers.context import Services
    from kafkapy.runtime.coordinators.coordinator import Coordinator
    from kafkapy.server.broker import BrokerServer
    from kafkapy.transaction.decision import TransactionDecision
    from kafkapy.transaction.shard import TransactionShard

Event: TypeAlias = "Callable[..., Coroutine[Any, Any, Any]]"
"""Takes a BrokerServer and plain arguments; its result is plain, too. Runs on the broker's loop."""

INIT_VERSION: Final = 4
"""The version of the InitProducerId that fences: the newest for which an older producer gets PRODUCER_FENCED."""
FENCING_TIMEOUT_MS: Final = 60_000
RETRY_S: Final = 0.01
SHOWN: Final = 5


class NotHere(FaultError):
    """The event belongs to another broker, if there is one; the message is for the case that there is none."""


async def topics(server: "BrokerServer") -> list[str]:
    """Return the names of the topics that the broker knows."""
    return sorted(server.node.controller.image.topics.by_name)


async def check_partition(server: "BrokerServer", topic: str, partition: int) -> int:
    """Return the leader of a partition. Raises FaultError if it does not exist."""
    known = server.node.controller.image.topics.by_name
    if topic not in known:
        raise FaultError(unknown("topic", topic, known))
    if partition not in known[topic].partitions:
        raise FaultError(f"topic {topic} has no partition {partition}: it has {len(known[topic].partitions)}")
    return known[topic].partitions[partition].leader


async def partition_of_key(server: "BrokerServer", key: str, is_group: bool) -> tuple[str, int]:
    """Return the partition whose leader coordinates a group or a transactional id."""
    coordinator = _coordinator(server, is_group=is_group)
    return coordinator.topic, coordinator.partition_of(key)


async def reload_coordinator(server: "BrokerServer", key: str, is_group: bool) -> None:
    """Unload the coordinator of a key, and load it again from its log."""
    _coordinator(server, is_group=is_group).reload(key)


async def fence_producer(server: "BrokerServer", transactional_id: str) -> None:
    """Fence the producer of a transactional id, as another one with the same id does."""
    from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest

    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)

    def decide(shard: "TransactionShard", now_ms: int) -> "TransactionDecision":
        if transactional_id not in shard.transactions:
            raise FaultError(unknown("transactional id", transactional_id, shard.transactions))
        return shard.init_producer_id(request, INIT_VERSION, now_ms)

    services = _coordinating(server, transactional_id, is_group=False)
    while True:
        response = await services.transactions.decide(transactional_id, decide)
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        await asyncio.sleep(RETRY_S)  # the transaction is being aborted
    if response.error_code:
        raise ApiError(ErrorCode(response.error_code))


async def abort_transaction(server: "BrokerServer", transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, as if its time-out had passed."""
    services = _coordinating(server, transactional_id, is_group=False)
    if not await services.transactions.abort_at_once(transactional_id):
        raise FaultError(f"transactional id {quoted(transactional_id)} has no open transaction")


async def expire_member(server: "BrokerServer", group: str, member_id: str | None, client_id: str) -> str:
    """End the session of a group's member; return its id."""
    host = _of_group(server, group).groups.host_of(group)
    found = _member(host.shard, group, member_id, client_id)
    host.expire_member(group, found)
    return found


async def rebalance(server: "BrokerServer", group: str) -> None:
    """Make a group rebalance."""
    services = _of_group(server, group)
    if not _members(services.groups.host_of(group).shard, group):
        raise FaultError(f"group {quoted(group)} has no members")
    await services.groups.rebalance(group)


async def corrupt(server: "BrokerServer", topic: str, partition: int, offset: int) -> None:
    """Change a byte on disk in the batch that has this offset."""
    from kafkapy.embedded.faults import damage

    damage.corrupt(server, topic, partition, offset)


async def log_directories(server: "BrokerServer") -> list[str]:
    """Return the paths of the broker's log directories."""
    return [each.path for each in server.node.log_manager.directories]


EVENTS: Final[Mapping[str, Event]] = {
    event.__name__: event
    for event in (
        topics,
        check_partition,
        partition_of_key,
        reload_coordinator,
        fence_producer,
        abort_transaction,
        expire_member,
        rebalance,
        corrupt,
        log_directories,
    )
}


def _of_group(server: "BrokerServer", group: str) -> "Services":
    services = _coordinating(server, group, is_group=True)
    shard = services.groups.host_of(group).shard
    if group not in shard.groups:
        raise FaultError(unknown("group", group, shard.groups))
    return services


def _coordinating(server: "BrokerServer", key: str, *, is_group: bool) -> "Services":
    """Return the services of the broker if it coordinates a key. Raises NotHere."""
    services = server.services
    if services is None or not _coordinator(server, is_group=is_group).is_hosted(key):
        raise NotHere(f"nobody coordinates {quoted(key)}: no client has used it")
    return services


def _coordinator(server: "BrokerServer", *, is_group: bool) -> "Coordinator[Any, Any]":
    assert server.services is not None, "a broker that has started"
    return server.services.groups if is_group else server.services.transactions


def _members(shard: "GroupShard", group: str) -> dict[str, str]:
    """Return the client ids of a group's members, by member id."""
    members = shard.groups[group].log.members
    found = members.values() if hasattr(members, "values") else members
    return {member.member_id: member.client_id for member in found}


def _member(shard: "GroupShard", group: str, member_id: str | None, client_id: str) -> str:
    members = _members(shard, group)
    for each, of_client in members.items():
        if each == member_id or (member_id is None and fnmatchcase(of_client, client_id)):
            return each
    wanted = f"member {quoted(member_id)}" if member_id is not None else f"member of a client {quoted(client_id)}"
    known = first_of([f"{each} of client {name}" for each, name in members.items()], SHOWN) or "none"
    raise FaultError(f"group {quoted(group)} has no {wanted}; there are: {known}")
