"""Members of KIP-848 groups for simulations: consumers that lose messages, take their time to revoke, and crash."""

from collections.abc import Iterator
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.types import Uuid

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
Partition = tuple[Uuid, int]


class SimulatedMember:
    """A consumer that revokes in its own time, and forgets what it owns when fenced or when its session is over."""

    def __init__(self, world: Any, name: str, instance_id: str | None, regex: str | None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.regex = regex
        self.topics = world.pick_topics()
        self.restart(name)

    def restart(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.wanted: set[Partition] = set()
        self.revoked_at_ms = 0
        self.next_beat_ms = self.world.shard.now_ms
        self.sent_ms = self.world.shard.now_ms
        self.must_send_all = True
        self.reported: set[Partition] | None = None
        self.is_running = True

    def visible(self) -> set[Partition]:
        """Return what the member believes to own: nothing once it must think that its session is over."""
        now_ms = self.world.shard.now_ms
        if now_ms >= self.sent_ms + SESSION_MS:
            return set()
        return self.owned & self.wanted if now_ms >= self.revoked_at_ms else self.owned

    def act(self) -> None:
        now_ms = self.world.shard.now_ms
        if self.is_running and now_ms >= self.sent_ms + SESSION_MS:
            self.forget()
        if self.owned - self.wanted and now_ms >= self.revoked_at_ms:
            self.owned &= self.wanted
        if not self.owned - self.wanted:
            self.owned = set(self.wanted)
        if self.is_running and now_ms >= self.next_beat_ms:
            self.beat()

    def forget(self) -> None:
        self.epoch, self.owned, self.wanted, self.must_send_all = 0, set(), set(), True

    def beat(self) -> None:
        now_ms = self.world.shard.now_ms
        self.next_beat_ms = now_ms + HEARTBEAT_MS
        request = self.request()
        if self.world.loses_messages and self.world.happens(0.05):
            self.must_send_all = True
            return
        try:
            response = self.world.send(request)
        except ApiError as error:
            self.refuse(error)
            return
        if self.world.loses_messages and self.world.happens(0.05):
            self.must_send_all = True
            return
        self.accept(response)
        self.sent_ms = now_ms

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.must_send_all:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = list(self.topics) if self.regex is None else None
            request.subscribed_topic_regex = self.regex
        if self.must_send_all or self.reported != self.owned:
            request.topic_partitions = list(_topic_partitions(self.owned))
            self.reported = set(self.owned)
        self.must_send_all = False
        return request

    def accept(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is None:
            return
        is_revoking = bool(self.owned - self.wanted)
        self.wanted = {
            (topic.topic_id, partition)
            for topic in response.assignment.topic_partitions
            for partition in topic.partitions
        }
        if self.owned - self.wanted and not is_revoking:
            # Had answers been lost since the last one, then the coordinator would be waiting since about then.
            until_ms = self.world.shard.now_ms + self.world.revocation_ms()
            self.revoked_at_ms = min(until_ms, self.sent_ms + REBALANCE_MS - 1)
        if not self.owned - self.wanted:
            self.owned = set(self.wanted)

    def refuse(self, error: ApiError) -> None:
        if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
            self.next_beat_ms = self.world.shard.now_ms
        elif error.code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.must_send_all = True
        else:
            raise error

    def leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.owned, self.wanted, self.is_running = set(), set(), False
        try:
            self.world.send(request)
        except ApiError:
            self.epoch = 0  # it was not in the group any more

    def crash(self) -> None:
        self.owned, self.wanted, self.is_running = set(), set(), False


def _topic_partitions(owned: set[Partition]) -> Iterator[TopicPartitions]:
    for topic_id in {topic_id for topic_id, _ in owned}:
        yield TopicPartitions(topic_id, partitions=sorted(partition for owner, partition in owned if owner == topic_id))
