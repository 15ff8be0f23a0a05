"""Members of groups that are a socket and the codec each: a thousand of them cost less than the broker they ask.

They act as consumers do, in both protocols: join and wait, compute the assignment when they lead (range), sync, send
heartbeats at their interval and join again when told to; or, with KIP-848, send heartbeats, take what they are given
and say at once what they have. Nothing is fetched. The same members are sent to both servers.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.wire import frame
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

JOIN, SYNC, HEARTBEAT, CONSUMER_HEARTBEAT, STREAMS_HEARTBEAT = 9, 5, 4, 1, 1
SUBTOPOLOGY = "0"
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 300_000
CLASSIC_INTERVAL_S = 3.0
"""heartbeat.interval.ms of a stock consumer; with KIP-848 the broker tells the interval."""
TIMEOUT_S = 120.0


class Peer(asyncio.Protocol):
    """One connection. Requests may be pipelined; responses come in their order."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: deque[Callable[[bytes], None]] = deque()
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def connect(cls, bootstrap: str) -> "Peer":
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        _, peer = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if end > len(received):
                break
            self._waiting.popleft()(bytes(received[position + 4 : end]))
            position = end
        del received[:position]

    def send(self, frame: bytes, on_response: Callable[[bytes], None]) -> None:
        """Send a whole frame; its response, without the size, goes to `on_response`."""
        assert self._transport is not None
        self._waiting.append(on_response)
        self._transport.write(frame)

    async def call(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.send(frame(request, version), lambda response: None if future.done() else future.set_result(response))
        async with asyncio.timeout(TIMEOUT_S):  # wait_for of Python 3.11 swallows a cancellation that comes with it
            return decode(await future, request.API_KEY, version)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def decode(response: bytes, api_key: int, version: int) -> Any:
    _, position = read_response_header(response, api_key, version)
    return response_type(api_key).decode(response[position:], version)


async def find_coordinator(peer: Peer, group_id: str) -> None:
    """Wait until the group has a coordinator that has loaded it."""
    requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        response = await peer.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 6)
        if not response.coordinators[0].error_code and not (await peer.call(requested, 9)).groups[0].error_code:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"group {group_id} has no coordinator")


class Member(Protocol):
    peer: Peer
    member_id: str

    async def run(self, interval_s: float | None) -> None:
        """Be a member until cancelled; with a heartbeat interval that is not a stock consumer's, if one is given."""
        ...

    def heartbeat(self) -> bytes:
        """Return the heartbeat of a member that has settled."""
        ...


class Group:
    """The members of one group, and when they had all settled: one generation, all partitions in equal parts."""

    def __init__(self, group_id: str, topic: str, topic_id: bytes, partition_count: int, member_count: int) -> None:
        assert partition_count % member_count == 0, "equal parts can be told at a glance"
        self.group_id = group_id
        self.topic = topic
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.share = partition_count // member_count
        self.settled = asyncio.Event()
        self.settled_at = 0.0
        self.mostly_settled_at = 0.0
        """When nine in ten had their share in one generation."""
        self._member_count = member_count
        self._generations: Counter[int] = Counter()

    def has_share(self, generation: int) -> None:
        """A member has its share in this generation."""
        self._generations[generation] += 1
        if not self.mostly_settled_at and self._generations[generation] >= 0.9 * self._member_count:
            self.mostly_settled_at = time.monotonic()
        if self._generations[generation] == self._member_count:
            self.settled_at = time.monotonic()
            self.settled.set()

    def lost_share(self, generation: int) -> None:
        self._generations[generation] -= 1


class ClassicMember:
    """A member of a classic group; `user_data` is what an assignor of its own adds to subscription and assignment."""

    def __init__(self, peer: Peer, group: Group, *, assignor: str = "range", user_data: bytes | None = None) -> None:
        self.peer = peer
        self.group = group
        self.assignor = assignor
        self.user_data = user_data
        self.member_id = ""
        self.generation = -1

    async def run(self, interval_s: float | None) -> None:
        while True:
            response = await self._join()
            if not response.error_code and await self._sync(response):
                await self._live(interval_s or CLASSIC_INTERVAL_S)

    async def _join(self) -> Any:
        metadata = b"\0\0" + ConsumerProtocolSubscription([self.group.topic], user_data=self.user_data).encode(0)
        request = JoinGroupRequest(
            self.group.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(self.assignor, metadata=metadata)],
            member_id=self.member_id,
        )
        response = await self.peer.call(request, JOIN)
        assert response.error_code in (0, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS), response
        self.member_id, self.generation = response.member_id, response.generation_id
        return response

    async def _sync(self, joined: Any) -> bool:
        """Ask for the share; return whether it came."""
        is_leader = joined.leader == self.member_id
        response = await self.peer.call(
            SyncGroupRequest(
                self.group.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=self.assignor,
                assignments=self._assign(sorted(each.member_id for each in joined.members)) if is_leader else [],
            ),
            SYNC,
        )
        if response.error_code == REBALANCE_IN_PROGRESS:
            return False
        assert response.error_code == 0, response
        assigned, _ = ConsumerProtocolAssignment.read(response.assignment, 2, 0)
        if sum(len(each.partitions) for each in assigned.assigned_partitions) == self.group.share:
            self.group.has_share(self.generation)
        return True

    def _assign(self, member_ids: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        count, rest = divmod(self.group.partition_count, len(member_ids))
        assignments = []
        first = 0
        for index, member_id in enumerate(member_ids):
            end = first + count + (index < rest)
            partitions = TopicPartition(self.group.topic, partitions=list(range(first, end)))
            given = ConsumerProtocolAssignment([partitions], user_data=self.user_data)
            assignments.append(SyncGroupRequestAssignment(member_id, assignment=b"\0\0" + given.encode(0)))
            first = end
        return assignments

    async def _live(self, interval_s: float) -> None:
        """Send heartbeats until one says that the others join again."""
        while True:
            await asyncio.sleep(interval_s)
            response = await self.peer.call(self._heartbeat(), HEARTBEAT)
            if response.error_code == REBALANCE_IN_PROGRESS:
                return
            assert response.error_code == 0, response

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(self.group.group_id, generation_id=self.generation, member_id=self.member_id)

    def heartbeat(self) -> bytes:
        return frame(self._heartbeat(), HEARTBEAT)


class EpochMember(ABC):
    """A member of a group whose coordinator assigns; it has nothing to finish before it gives up what it owns."""

    VERSION: int
    """Of its heartbeats."""

    def __init__(self, peer: Peer, group: Group, *, name: str) -> None:
        self.peer = peer
        self.group = group
        self.member_id = name
        self.epoch = 0
        self.owned: list[int] = []
        self._counted: int | None = None

    async def run(self, interval_s: float | None) -> None:
        response = await self._beat(rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, **self._joining(), **self._owning())
        while True:
            assigned = self._assigned(response)
            if assigned is not None and self._take(assigned):
                response = await self._beat(**self._owning())
                continue
            await asyncio.sleep(interval_s or response.heartbeat_interval_ms / 1000)
            response = await self._beat()

    def heartbeat(self) -> bytes:
        return frame(self._request(), self.VERSION)

    @abstractmethod
    def _request(self, **fields: Any) -> Any:
        """Return a heartbeat."""

    @abstractmethod
    def _joining(self) -> dict[str, Any]:
        """Return the fields that only the first heartbeat has."""

    @abstractmethod
    def _owning(self) -> dict[str, Any]:
        """Return the fields that say what it owns."""

    @abstractmethod
    def _assigned(self, response: Any) -> list[Any] | None:
        """Return what a response assigns, each with `partitions`; None if it says nothing of it."""

    async def _beat(self, **fields: Any) -> Any:
        response = await self.peer.call(self._request(**fields), self.VERSION)
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        self._count()
        return response

    def _take(self, assigned: list[Any]) -> bool:
        """Own what the response says; return whether that is a change."""
        owned = [partition for each in assigned for partition in each.partitions]
        is_new = owned != self.owned
        self.owned = owned
        self._count()
        return is_new

    def _count(self) -> None:
        counted = self.epoch if len(self.owned) == self.group.share else None
        if counted == self._counted:
            return
        if self._counted is not None:
            self.group.lost_share(self._counted)
        self._counted = counted
        if counted is not None:
            self.group.has_share(counted)


class ConsumerMember(EpochMember):
    """Of a KIP-848 group."""

    VERSION = CONSUMER_HEARTBEAT

    def _request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            self.group.group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )

    def _joining(self) -> dict[str, Any]:
        return {"subscribed_topic_names": [self.group.topic]}

    def _owning(self) -> dict[str, Any]:
        owned = [TopicPartitions(self.group.topic_id, partitions=self.owned)] if self.owned else []
        return {"topic_partitions": owned}

    def _assigned(self, response: Any) -> list[Any] | None:
        return None if response.assignment is None else response.assignment.topic_partitions


class StreamsMember(EpochMember):
    """Of a KIP-1071 group, a process of its own: it runs a task per partition, and closes it at once."""

    VERSION = STREAMS_HEARTBEAT

    def _request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            self.group.group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )

    def _joining(self) -> dict[str, Any]:
        reads = Topology(0, subtopologies=[Subtopology(SUBTOPOLOGY, source_topics=[self.group.topic])])
        return {"process_id": self.member_id, "topology": reads}

    def _owning(self) -> dict[str, Any]:
        active = [TaskIds(SUBTOPOLOGY, partitions=self.owned)] if self.owned else []
        return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}

    def _assigned(self, response: Any) -> list[Any] | None:
        found: list[Any] | None = response.active_tasks
        return found
