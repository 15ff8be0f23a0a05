"""What happens to a cluster by itself, at a moment that a test chooses: by the broker's own paths, not error codes."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkapy.embedded.faults.rules import FaultError, Faults
from kafkapy.errors import ApiError, first_of, quoted, unknown
from kafkapy.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkapy.embedded.faults.faulty_disk import DiskState
    from kafkapy.group.shard import GroupShard
    from kafkapy.handlers.context import Services
    from kafkapy.runtime.coordinators.coordinator import Coordinator
    from kafkapy.server.broker import BrokerServer
    from kafkapy.transaction.decision import TransactionDecision
    from kafkapy.transaction.shard import TransactionShard

R = TypeVar("R")

INIT_VERSION: Final = 4
"""Of the InitProducerId that fences: the newest at which an older producer is told PRODUCER_FENCED."""
FENCING_TIMEOUT_MS: Final = 60_000
RETRY_S: Final = 0.01
SHOWN: Final = 5


class World(Protocol):
    """The brokers that faults are about."""

    @property
    def disk(self) -> "DiskState | None":
        """What may be wrong with the disk; None without disk_faults."""
        ...

    def servers(self) -> "list[BrokerServer]":
        """Return those that run. Raises RuntimeError if the broker does not."""
        ...

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """Have another broker lead a partition; return it. Raises FaultError if there is none."""
        ...

    def restart_after(self, act: Callable[[], int]) -> int:
        """Kill the broker, run `act` while it does not run, start it again; return the result of `act`."""
        ...


class ActingFaults(Faults):
    """Faults by name, and events. The methods of events block: in `async with`, call them by asyncio.to_thread.

    They return when what they do is done in the broker; when a client hears of it is the client's affair.
    """

    def __init__(self, on_first: Callable[[], None], topics: Callable[[], list[str]], world: World) -> None:
        super().__init__(on_first, topics)
        self._world = world

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Have another replica of a partition lead it, as after a reassignment; return the broker. Raises FaultError.

        `to`: which; None: the next one. Needs a cluster.
        """
        self._check_partition(topic, partition)
        return self._world.move_leader(topic, partition, to)

    def lose_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """Move the coordinator of a group or of a transactional id to another broker.

        On a single broker it is unloaded, and loaded anew from its log: requests that wait are answered
        NOT_COORDINATOR, and a group's members have new sessions. Raises FaultError.
        """
        if (group is None) == (transactional_id is None):
            raise FaultError("name either a group or a transactional_id, whose coordinator is to be lost")
        key = group if group is not None else transactional_id
        assert key is not None
        coordinators = [_coordinator(server, is_group=group is not None) for server in self._world.servers()]
        topic, partition = coordinators[0].topic, coordinators[0].partition_of(key)
        if len(self._world.servers()) > 1:
            self._check_partition(topic, partition)
            self._world.move_leader(topic, partition, None)
        else:
            self._run(self._world.servers()[0], lambda: _now(lambda: coordinators[0].reload(key)))

    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as another one with the same id does. Raises FaultError.

        An open transaction of it is aborted.
        """
        from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)

        def decide(shard: "TransactionShard", now_ms: int) -> "TransactionDecision":
            if transactional_id not in shard.transactions:
                raise FaultError(unknown("transactional id", transactional_id, shard.transactions))
            return shard.init_producer_id(request, INIT_VERSION, now_ms)

        async def fence() -> None:
            while True:
                answer = await services.transactions.decide(transactional_id, decide)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(RETRY_S)  # the transaction is being aborted
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code))

        server, services = self._of_transaction(transactional_id)
        self._run(server, fence)

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, as if its time-out had passed. Raises FaultError."""
        server, services = self._of_transaction(transactional_id)

        async def abort() -> None:
            if not await services.transactions.abort_at_once(transactional_id):
                raise FaultError(f"transactional id {quoted(transactional_id)} has no open transaction")

        self._run(server, abort)

    def expire_member(self, group: str, *, member_id: str | None = None, client_id: str = "*") -> str:
        """End the session of a group's member, as if it had sent no heartbeat in time; return its id.

        Raises FaultError. `member_id`, or the first member whose client id is like `client_id`.
        """
        server, services = self._of_group(group)

        async def expire() -> str:
            host = services.groups.host_of(group)
            found = _member(host.shard, group, member_id, client_id)
            host.expire_member(group, found)
            return found

        return self._run(server, expire)

    def rebalance(self, group: str) -> None:
        """Have a group assign its partitions anew. Raises FaultError.

        Of a classic group all members have to join again. A group of the consumer protocol (KIP-848) gets another
        member for a moment.
        """
        server, services = self._of_group(group)

        async def rebalance() -> None:
            host = services.groups.host_of(group)
            if not _members(host.shard, group):
                raise FaultError(f"group {quoted(group)} has no members")
            await services.groups.rebalance(group)

        self._run(server, rebalance)

    def corrupt(self, topic: str, partition: int = 0, offset: int = 0, *, node_id: int | None = None) -> None:
        """Change a byte on disk in the batch that has this offset: its checksum is wrong from then on.

        Of the leader's log, or of that of the node named. Raises FaultError.
        """
        from kafkapy.embedded.faults.damage import corrupt

        self._check_partition(topic, partition)
        servers = self._world.servers()
        leader = _registration(servers[0], topic, partition).leader if node_id is None else node_id
        server = next((each for each in servers if each.node_id == leader), None)
        if server is None:
            raise FaultError(f"node {leader} does not run here")
        self._run(server, lambda: _now(lambda: corrupt(server, topic, partition, offset)))

    # -- the disk -------------------------------------------------------------------------------------------------

    def fill_disk(self, *, room: int = 0) -> None:
        """Let files grow by `room` bytes more in all: then each write that needs more fails with ENOSPC."""
        self._disk.room = room

    def fail_disk(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Let each access to a file fail with EIO: in a log directory, or anywhere. Raises FaultError.

        A node whose metadata directory fails stops: `log.dirs` with two directories has another one.
        """
        name = "" if directory is None else os.path.abspath(directory)
        known = [each.path for server in self._world.servers() for each in server.node.log_manager.directories]
        if name and name not in known:
            raise FaultError(f"{name} is no log directory; there are: {', '.join(known)}")
        self._disk.failing = name and f"{name}/"

    def slow_disk(self, *, ms: int) -> None:
        """Let each access to a file take so much longer."""
        if ms < 1:
            raise FaultError(f"ms is a number from 1 on, not {ms}")
        self._disk.delay_s = ms / 1000

    def mend_disk(self) -> None:
        """End fill_disk, fail_disk and slow_disk. A log directory that has failed is offline until `restart`."""
        self._disk.mend()

    def lose_unsynced(self) -> int:
        """Crash the machine, lose what was not synced, start again; return how many bytes were lost.

        Acknowledged records are among them, as with Apache Kafka, which leaves syncing to the system and its replicas.
        """
        return self._world.restart_after(self._disk.lose_unsynced)

    @property
    def _disk(self) -> "DiskState":
        disk = self._world.disk
        if disk is None:
            raise FaultError("this needs Broker(disk_faults=True), which looks at each access to a file")
        return disk

    def _of_group(self, group: str) -> "tuple[BrokerServer, Services]":
        server, services = self._coordinating(group, is_group=True)
        shard = services.groups.host_of(group).shard
        if group not in shard.groups:
            raise FaultError(unknown("group", group, shard.groups))
        return server, services

    def _of_transaction(self, transactional_id: str) -> "tuple[BrokerServer, Services]":
        return self._coordinating(transactional_id, is_group=False)

    def _coordinating(self, key: str, *, is_group: bool) -> "tuple[BrokerServer, Services]":
        """Return the broker that coordinates a key. Raises FaultError if there is none."""
        for server in self._world.servers():
            services = server.services
            if services is not None and _coordinator(server, is_group=is_group).is_hosted(key):
                return server, services
        raise FaultError(f"nobody coordinates {quoted(key)}: no client has used it")

    def _check_partition(self, topic: str, partition: int) -> None:
        topics = self._world.servers()[0].node.controller.image.topics.by_name
        if topic not in topics:
            raise FaultError(unknown("topic", topic, topics))
        if partition not in topics[topic].partitions:
            raise FaultError(f"topic {topic} has no partition {partition}: it has {len(topics[topic].partitions)}")

    @staticmethod
    def _run(server: "BrokerServer", function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function on the broker's loop, from another thread; return its result."""
        loop = server.node.loop
        if asyncio._get_running_loop() is loop:
            raise RuntimeError("this runs on the broker's event loop: await asyncio.to_thread(faults.METHOD, ...)")
        return asyncio.run_coroutine_threadsafe(function(), loop).result()


async def _now(function: Callable[[], R]) -> R:
    return function()


def _coordinator(server: "BrokerServer", *, is_group: bool) -> "Coordinator[Any, Any]":
    assert server.services is not None, "a broker that has started"
    return server.services.groups if is_group else server.services.transactions


def _registration(server: "BrokerServer", topic: str, partition: int) -> Any:
    return server.node.controller.image.topics.by_name[topic].partitions[partition]


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
