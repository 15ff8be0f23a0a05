"""Consumers of classic groups for simulations: eager or cooperative ones, which lose answers and are slow at times.

The world that they live in says when (loses, slowness), and assigns for the one that leads (assign).
"""

from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.types import TopicPartition

SESSION_MS, REBALANCE_MS, HEARTBEAT_MS, REQUEST_MS = 10_000, 20_000, 3_000, 30_000
TOPIC = "t"
VERSION = 3
Owned = set[TopicPartition]


class Consumer:
    """A consumer as clients are: joins, syncs, heartbeats, and joins again whenever it is told to."""

    def __init__(self, world: Any, instance_id: str | None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.start()

    def start(self) -> None:
        """Begin without memory, as a process that was restarted."""
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = set()
        self.is_running = True
        self.is_member = self.is_leader = False
        self.token: int | None = None
        self.request = ""
        self.sent_ms = 0
        self.next_ms = self.world.now_ms
        self.heard_ms = 0
        """When a heartbeat of this generation was answered, 0 before the first."""
        self.known_count = 0

    def crash(self) -> None:
        self.is_running = self.is_member = False
        self.token = None
        self.owned = set()

    def act(self) -> None:
        if not self.is_running:
            return
        if self.token is not None:
            self._look_for_response()
        elif self.world.now_ms >= self.next_ms:
            self._heartbeat() if self.is_member else self._join()

    # -- requests -------------------------------------------------------------------------------------------------

    def _send(self, request: str, token: int) -> None:
        self.request, self.token, self.sent_ms = request, token, self.world.now_ms
        self._look_for_response()

    def _join(self) -> None:
        self.is_member = False
        if not self.world.is_cooperative:
            self.owned = set()
        name = "cooperative" if self.world.is_cooperative else "range"
        token = self.world.shard.join(
            self.member_id,
            group_instance_id=self.instance_id,
            protocols={name: self._subscription()},
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self._send("join", token)

    def _subscription(self) -> bytes:
        owned = (
            [OwnedTopic(TOPIC, partitions=sorted(partition.partition for partition in self.owned))]
            if self.owned
            else []
        )
        subscription = ConsumerProtocolSubscription(
            [TOPIC], user_data=None, owned_partitions=owned, generation_id=self.generation
        )
        return VERSION.to_bytes(2, "big") + subscription.encode(VERSION)

    def _heartbeat(self) -> None:
        self.next_ms = self.world.now_ms + HEARTBEAT_MS
        if self.world.loses():
            return
        code = self.world.shard.heartbeat(self.member_id, self.generation, self.instance_id)
        if code != ErrorCode.NONE:
            self._refused(code)
            return
        self.heard_ms = self.world.now_ms
        if self.is_leader and self.known_count != self.world.partition_count:
            self._join()

    def _look_for_response(self) -> None:
        assert self.token is not None
        if self.world.shard.is_waiting(self.token):
            if self.world.now_ms - self.sent_ms > REQUEST_MS:
                self._retry()
            return
        response = self.world.shard.take(self.token)
        if self.world.loses():
            self._retry()
            return
        self.token = None
        code = response.code if isinstance(response, ApiError) else response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code != ErrorCode.NONE:
            self._refused(code)
        elif self.request == "join":
            self._joined(response)
        else:
            self._synced(response.assignment)

    def _retry(self) -> None:
        """Ask again a little later: the connection was lost."""
        self.token = None
        self.next_ms = self.world.now_ms + 500

    def _refused(self, code: int) -> None:
        self.is_member = False
        self.next_ms = self.world.now_ms + self.world.slowness()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned, self.generation = set(), -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            # As with Apache Kafka: a static id of a generation that was not written yet is lost with its coordinator.
            assert self.world.has_failed_over, "nobody else has this instance id"
            self.start()
        else:
            assert code in (
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ), ErrorCode(code)

    def forgets_to_sync(self) -> bool:
        """Whether it goes on with heartbeats as if it had its assignment."""
        return False

    def _joined(self, response: JoinGroupResponse) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        if self.forgets_to_sync():
            self.is_member, self.owned = True, set()
            return
        self.is_leader = response.leader == response.member_id
        self.known_count = self.world.partition_count
        assignments = {}
        if response.skip_assignment:
            self.known_count = -1  # what has changed while it was away nobody has noticed (KIP-814): it looks again
        elif self.is_leader:
            assignments = self.world.assign(response)
        token = self.world.shard.sync(
            self.member_id,
            self.generation,
            assignments,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=response.protocol_name,
        )
        self._send("sync", token)

    def _synced(self, assignment: bytes) -> None:
        assert assignment, "a live member's assignment has bytes"
        self.world.reported(self, assignment)
        assigned = assigned_partitions(assignment)
        has_revoked = bool(self.owned - assigned)
        self.owned = assigned
        self.is_member = True
        self.heard_ms = 0
        self.next_ms = self.world.now_ms + HEARTBEAT_MS
        if has_revoked and self.world.is_cooperative:
            self._join()  # so that others get what it has given up


def assign(response: JoinGroupResponse, partition_count: int, *, is_cooperative: bool) -> dict[str, bytes]:
    """Return the leader's assignment; cooperatively, what somebody else still has is left out."""
    everything = [TopicPartition(TOPIC, partition) for partition in range(partition_count)]
    members = sorted(member.member_id for member in response.members)
    wanted = {member_id: set(everything[index :: len(members)]) for index, member_id in enumerate(members)}
    if is_cooperative:
        owners = _owners(response)
        wanted = {
            member_id: {partition for partition in partitions if owners.get(partition, member_id) == member_id}
            for member_id, partitions in wanted.items()
        }
    return {member_id: encode_assignment(partitions) for member_id, partitions in wanted.items()}


def _owners(response: JoinGroupResponse) -> dict[TopicPartition, str]:
    """Return who has what, by the latest generation that claims it."""
    latest: dict[TopicPartition, tuple[int, str]] = {}
    for member in response.members:
        subscription, _ = ConsumerProtocolSubscription.read(member.metadata, 2, VERSION)
        for topic in subscription.owned_partitions:
            for partition in topic.partitions:
                key = TopicPartition(topic.topic, partition)
                claim = (subscription.generation_id, member.member_id)
                latest[key] = max(claim, latest.get(key, claim))
    return {partition: member_id for partition, (_, member_id) in latest.items()}


def encode_assignment(partitions: Owned) -> bytes:
    topics = (
        [AssignedTopic(TOPIC, partitions=sorted(partition.partition for partition in partitions))] if partitions else []
    )
    return b"\0\0" + ConsumerProtocolAssignment(topics).encode(0)
