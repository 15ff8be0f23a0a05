"""Share groups against Apache Kafka's own coordinator (tools/record_share_groups.py, which tells the format)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.share.decision import InitializeStates
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue
from tests.support.consumer_groups import image_of, topic_id
from tests.support.recorded_groups import CLIENT, GROUP, plain, recorded, sent_epoch, steps
from tests.support.share_groups import ShareWorld, partitions

GOLDEN = Path(__file__).parent / "share_groups.txt.gz"


def name_of(identity: bytes) -> str:
    return identity.rstrip(b"\0").decode()


class Replayed:
    """The scripts, played on a shard. Methods return the outcome as the recorder tells it, records as plain values."""

    def __init__(self, keys: str) -> None:
        config = {
            f"group_share_{key.replace('.', '_').replace('interval', 'interval_ms')}": int(value)
            for key, _, value in (each.partition("=") for each in keys.split())
        }
        self.world = ShareWorld(**config)
        self.epochs: dict[str, int] = {}
        self.pending: InitializeStates | None = None

    @property
    def share(self) -> Any:
        return self.world.shard.share

    def play(self, words: list[str]) -> list[Any]:
        self.world.groups_world.now_ms += 1
        try:
            return list(getattr(self, words[0])(*words[1:]))
        except ApiError as error:
            return [f"error {int(error.code)} {error.message}"]

    def written(self, decision: Any) -> list[Any]:
        return list(map(facts, self.world.commit(decision)))

    def topics(self, text: str) -> Iterator[Any]:
        counts = dict(each.split(":") for each in text.split(",") if each != "-")
        self.world.image = image_of(**{name: int(count) for name, count in counts.items()})
        yield from ()

    def heartbeat(self, member_id: str, epoch: str, rack: str, names: str) -> Iterator[Any]:
        request = ShareGroupHeartbeatRequest(
            GROUP,
            member_id=member_id,
            member_epoch=sent_epoch(epoch, self.epochs.get(member_id, 0)),
            rack_id=None if rack == "-" else rack,
            subscribed_topic_names=None if names == "-" else names.split(","),
        )
        if request.member_epoch == 0 and request.subscribed_topic_names is None:
            return
        decision = self.share.heartbeat(request, CLIENT, self.world.groups_world.now_ms)
        response = decision.response
        self.epochs[member_id] = max(response.member_epoch, 0)
        yield (
            f"answer {response.member_id} {response.member_epoch} {response.heartbeat_interval_ms} "
            f"{assignment_text(response.assignment)}"
        )
        yield from self.written(decision)
        assert not self.world.pass_time(0), "only the session of a member of a new group begins"
        for effect in decision.effects:
            yield self.initialize(effect)

    def initialize(self, effect: InitializeStates) -> str:
        self.pending = effect
        texts = sorted(
            f"{name_of(identity)}:{partition}:{offset}"
            for identity, offsets in effect.start_offsets.items()
            for partition, offset in offsets.items()
        )
        return f"initialize {effect.state_epoch} {','.join(texts)}"

    def initialized(self) -> Iterator[Any]:
        yield from self._outcome(self.share.states_initialized)

    def refused(self) -> Iterator[Any]:
        yield from self._outcome(self.share.states_failed)

    def _outcome(self, decide: Any) -> list[Any]:
        pending, self.pending = self.pending, None
        return [] if pending is None else self.written(decide(GROUP, partitions(pending)))

    def advance(self, duration_ms: str) -> Iterator[Any]:
        yield from map(facts, self.world.pass_time(int(duration_ms)))

    def alter(self, text: str) -> Iterator[Any]:
        wanted = [each.split(":") for each in text.split(",")]
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=int(number), start_offset=int(offset))
                ],
            )
            for name, number, offset in wanted
        ]
        decision = self.share.alter_offsets(GROUP, topics)
        yield "answer " + ",".join(
            f"{topic.topic_name}:{each.partition_index}:{each.error_code}"
            for topic in decision.response.responses
            for each in topic.partitions
        )
        yield from self.written(decision)
        self.pending = None
        if decision.initialize is not None:
            yield self.initialize(decision.initialize)

    def delete(self, text: str) -> Iterator[Any]:
        decision = self.share.delete_offsets(GROUP, text.split(","))
        errors = [f"{topic.topic_name}:{int(topic.error_code)}" for topic in decision.response.responses]
        yield f"answer {','.join(errors) or '-'}"
        yield from self.written(decision)
        yield from self._states(decision)

    def deleted(self, text: str) -> Iterator[Any]:
        topics = {topic_id(name): name for name in text.split(",")}
        yield from self.written(self.share.offsets_deleted(GROUP, DeleteShareGroupOffsetsResponse(), topics))

    def forget(self, name: str) -> Iterator[Any]:
        yield from self.written(self.world.shard.forget_topic(name, topic_id(name)))

    def remove(self) -> Iterator[Any]:
        decision = self.share.begin_deletion(GROUP)
        yield from self._states(decision)
        yield from self.written(decision)
        yield from self.written(self.world.shard.delete_group(GROUP))
        self.pending = None

    def _states(self, decision: Any) -> Iterator[str]:
        if decision.delete is not None:
            wanted = decision.delete.partitions.items()
            texts = sorted(f"{name_of(identity)}:{each}" for identity, numbers in wanted for each in numbers)
            yield f"states {','.join(texts)}".rstrip()


def assignment_text(assignment: Any) -> str:
    if assignment is None:
        return "-"
    texts = [
        f"{name_of(topic.topic_id)}:{each}"
        for topic in assignment.topic_partitions
        for each in (topic.partitions or ["-"])
    ]
    return f"[{','.join(sorted(texts))}]"


def facts(record: CoordinatorRecord) -> Any:
    """Return a record as plain values, and a target in its order, on which the next target depends."""
    value = record.value
    is_target = isinstance(value, ShareGroupTargetAssignmentMemberValue)
    return plain(record), [(each.topic_id, each.partitions) for each in value.topic_partitions] if is_target else []


def expected_of(line: str) -> Any:
    kind, _, rest = line.partition(" ")
    return facts(recorded(rest)) if kind == "record" else line


def test_share_groups_answer_and_write_as_apache_kafka() -> None:
    replayed = Replayed("")
    count = 0
    for operation, outcome in steps(GOLDEN):
        if operation.startswith("#"):
            replayed = Replayed(operation[2:])
            continue
        count += 1
        assert replayed.play(operation.split(" ")) == list(map(expected_of, outcome)), (count, operation)
    assert count > 3000
