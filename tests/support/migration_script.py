"""Scripts of groups that change their protocol, played to a broker; every response and every record of it as text.

What differs from run to run has a name instead: ids that brokers make, topic ids, times. Where Apache Kafka writes in
the order of a hash map, lines are sorted.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby
from typing import Any, Final

from kafkapy.group.records import CoordinatorRecord, decode_record
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.protocol.primitives import MessageStruct
from kafkapy.record.batches import batches
from kafkapy.runtime.coordinators.coordinator import java_hash
from tests.support.client_requests import create_topic, fetch_request, metadata
from tests.support.group_configs import set_group_configs
from tests.support.membership import describe_group, join_request, leave
from tests.support.offsets import commit, fetch_group, find_coordinator
from tests.support.wire import WireClient

JOIN, SYNC, HEARTBEAT, FETCH = 9, 5, 4, 12
OMITTED: Final = {"throttle_time_ms", "unknown_tagged_fields", "authorized_operations", "current_state_timestamp"}
TIMES: Final = {"commit_timestamp", "assignment_timestamp", "timestamp"}
NO_TIMES: Final = (0, -1)
ID_LENGTH: Final = 22
"""Ids that brokers make are at least as long, those of the scripts shorter."""


def subscription(*owned: int, version: int = 1, user_data: bytes | None = None, topic: str) -> bytes:
    owns = [OwnedTopic(topic, partitions=list(owned))] if owned else []
    content = ConsumerProtocolSubscription([topic], user_data=user_data, owned_partitions=owns if version else [])
    return version.to_bytes(2, "big") + content.encode(version)


def assignment(*partitions: int, user_data: bytes | None = None, topic: str) -> bytes:
    topics = [AssignedTopic(topic, partitions=list(partitions))] if partitions else []
    return b"\0\1" + ConsumerProtocolAssignment(topics, user_data=user_data).encode(1)


class Play:
    """One group with a topic of three partitions and of the same name. Methods ask, and note what is answered."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._stack = ExitStack()
        self._bootstrap = bootstrap
        self.group = group
        self.lines: list[str] = []
        self._names: dict[str, str] = {}
        self._clients: dict[str, WireClient] = {}
        self.client = self._connected("")
        set_group_configs(self.client, group, consumer_assignment_interval_ms="0")
        topic_id = create_topic(self.client, group, 3)
        self._names[topic_id.hex()] = "<topic id>"
        find_coordinator(self.client, group)

    def close(self) -> None:
        self._stack.close()

    def _connected(self, who: str) -> WireClient:
        """Return the connection of somebody; each has one, as requests that wait hold back those behind them."""
        if who not in self._clients:
            self._clients[who] = self._stack.enter_context(WireClient(self._bootstrap, timeout_s=60))
        return self._clients[who]

    def note(self, title: str, response: Any) -> Any:
        self.lines.append(f"{title}: {self._text(response)}")
        return response

    # -- classic members ------------------------------------------------------------------------------------------

    def send_join(self, who: str, member_id: str = "", *owned: int, version: int = JOIN, **fields: Any) -> None:
        if "protocols" not in fields:
            fields["protocols"] = {"range": subscription(*owned, topic=self.group)}
        fields = {"session_timeout_ms": 10_000, **fields}  # as recorded
        self._connected(who).send(join_request(self.group, member_id, **fields), version)

    def receive_join(self, who: str) -> Any:
        response = self._connected(who).receive()
        if len(response.member_id) >= ID_LENGTH:
            self._names.setdefault(response.member_id, f"<{who}>")
        response.members.sort(key=self._text)
        return self.note(f"{who} joins", response)

    def join(self, who: str, member_id: str = "", *owned: int, **fields: Any) -> Any:
        self.send_join(who, member_id, *owned, **fields)
        return self.receive_join(who)

    def send_sync(self, who: str, member_id: str, generation: int, assignments: Any = None, **fields: Any) -> None:
        listed = [SyncGroupRequestAssignment(to, assignment=what) for to, what in (assignments or {}).items()]
        fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        request = SyncGroupRequest(
            self.group, generation_id=generation, member_id=member_id, assignments=listed, **fields
        )
        self._connected(who).send(request, SYNC)

    def receive_sync(self, who: str) -> Any:
        return self.note(f"{who} syncs", self._connected(who).receive())

    def sync(self, who: str, member_id: str, generation: int, assignments: Any = None, **fields: Any) -> Any:
        self.send_sync(who, member_id, generation, assignments, **fields)
        return self.receive_sync(who)

    def heartbeat(self, who: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        request = HeartbeatRequest(
            self.group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        self.note(f"{who} heartbeats", self._connected(who).call(request, HEARTBEAT))

    def leave(self, who: str, *members: tuple[str, str | None]) -> None:
        self.note(f"{who} leaves", leave(self._connected(who), self.group, *members))

    # -- members of the consumer protocol -------------------------------------------------------------------------

    def beat(self, member_id: str, epoch: int, *owned: int | None, **fields: Any) -> Any:
        """Without `owned` the heartbeat says nothing of it; None says that nothing is owned."""
        if owned:
            topic_id = next(bytes.fromhex(text) for text, name in self._names.items() if name == "<topic id>")
            has = [partition for partition in owned if partition is not None]
            fields["topic_partitions"] = [TopicPartitions(topic_id, partitions=has)] if has else []
        if epoch == 0:
            joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.group], "topic_partitions": []}
            fields = {**joining, **fields}
        request = ConsumerGroupHeartbeatRequest(self.group, member_id=member_id, member_epoch=epoch, **fields)
        return self.note(f"{member_id} beats at {epoch}", self.client.call(request, 1))

    # -- anyone ---------------------------------------------------------------------------------------------------

    def commit(self, member_id: str, generation: int, *, version: int = 9) -> None:
        fields = {"member_id": member_id, "generation_id_or_member_epoch": generation}
        self.note("commit", commit(self.client, self.group, self.group, 7, version=version, **fields))

    def fetch_offset(self, member_id: str | None, epoch: int) -> None:
        self.note("fetch", fetch_group(self.client, self.group, self.group, member_id=member_id, member_epoch=epoch))

    def look(self) -> None:
        """Note how the group is listed and described by either API."""
        listed = self.client.call(ListGroupsRequest(), 5).groups
        self.note("listed", [group for group in listed if group.group_id == self.group])
        described = describe_group(self.client, self.group)
        described.members.sort(key=self._text)
        self.note("described as classic", described)
        (described,) = self.client.call(ConsumerGroupDescribeRequest([self.group]), 1).groups
        described.members.sort(key=self._text)
        self.note("described as consumer", described)

    def log(self) -> None:
        """Note all records of the group in the coordinator's log."""
        (offsets_topic,) = metadata(self.client, OFFSETS_TOPIC).topics
        partition = java_hash(self.group) % len(offsets_topic.partitions)
        records: list[CoordinatorRecord] = []
        offset, is_at_end = 0, False
        while not is_at_end:
            response = self.client.call(fetch_request(OFFSETS_TOPIC, offset, partition=partition), FETCH)
            data = response.responses[0].partitions[0]
            assert data.error_code == 0
            for batch in batches(bytes(data.records or b"")):
                offset = batch.next_offset
                records += [found for each in batch.records() if (found := decode_record(each.key, each.value))]
            is_at_end = offset >= data.high_watermark
        own = [record for record in records if self._group_of(record) == self.group]
        for _, run in groupby(own, lambda record: (type(record.key), record.value is None)):
            self.lines += sorted(self._record_text(record) for record in run)

    def _group_of(self, record: CoordinatorRecord) -> str:
        key: Any = record.key
        return str(getattr(key, "group_id", None) or getattr(key, "group", ""))

    def _record_text(self, record: CoordinatorRecord) -> str:
        if isinstance(record.value, GroupMetadataValue) and len(record.value.members) > 1:
            record.value.members.sort(key=self._text)
            record.value.leader = "one of them"
        value = "gone" if record.value is None else self._text(record.value)
        return f"record {record.key.NAME.removesuffix('Key')} {self._text(record.key)}: {value}"

    def _text(self, value: Any) -> str:
        text = json.dumps(_plain(value), ensure_ascii=False)
        for found, name in self._names.items():
            text = text.replace(found, name)
        return text.replace(self.group.encode().hex(), "<topic>").replace(self.group, "<group>")


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, MessageStruct):
        return {slot: _plain(getattr(value, slot), slot) for slot in value.field_names() if slot not in OMITTED}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if name in TIMES:
        return value if value in NO_TIMES else "now"
    if name == "metadata_hash":
        return "hash" if value else 0
    return value


Script = Callable[[Play], None]
