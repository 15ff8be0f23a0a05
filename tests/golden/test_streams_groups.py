"""Streams groups against Apache Kafka's own coordinator (tools/record_streams_groups.py, which tells the format)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.protocol.json_lines import from_json, to_json
from kafkapy.protocol.messages.streams_group_describe_response import StreamsGroupDescribeResponse
from tests.support.consumer_groups import GroupWorld, image_of, topic_id
from tests.support.recorded_groups import CLIENT, GROUP, plain, plain_record, sent_epoch, steps, unordered

GOLDEN = Path(__file__).parent / "streams_groups.txt.gz"
DEFAULTS: dict[str, Any] = {
    "groupId": GROUP,
    "endpointInformationEpoch": 0,
    "instanceId": None,
    "rackId": None,
    "rebalanceTimeoutMs": -1,
    "topology": None,
    "activeTasks": None,
    "standbyTasks": None,
    "warmupTasks": None,
    "processId": None,
    "userEndpoint": None,
    "clientTags": None,
    "taskOffsets": None,
    "taskEndOffsets": None,
    "shutdownApplication": False,
}
TASKS = ("activeTasks", "standbyTasks", "warmupTasks")


class Replayed:
    """The scripts, played on a shard. Methods return the outcome as the recorder tells it, records as plain values."""

    def __init__(self, keys: str) -> None:
        self.world = GroupWorld(**dict(_config(*each.split("=")) for each in keys.split()))
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[str, Any]] = {}

    @property
    def streams(self) -> Any:
        return self.world.shard.streams

    def play(self, words: list[str]) -> list[Any]:
        self.world.now_ms += 1
        try:
            return list(getattr(self, words[0])(*words[1:]))
        except ApiError as error:
            return [f"error {int(error.code)} {error.message}"]

    def written(self, decision: Any) -> list[Any]:
        return [plain(record) for record in self.world.commit(decision)]

    def topics(self, text: str) -> Iterator[Any]:
        counts = dict(each.split(":") for each in text.split(",") if each != "-")
        image = image_of(**{name: int(count) for name, count in counts.items()})
        self.world.image = replace(image, configs=self.world.image.configs)
        yield from ()

    def config(self, text: str) -> Iterator[Any]:
        keys = dict(each.split("=") for each in text.split(";") if each != "-")
        self.world.group_configs[GROUP] = {f"streams.{key}": value for key, value in keys.items()}
        self.world.image = replace(self.world.image, configs=replace(self.world.image.configs))
        yield from ()

    def heartbeat(self, member_id: str, epoch: str, version: str, tasks: str, *rest: str) -> Iterator[Any]:
        nothing: dict[str, Any] = {kind: [] for kind in TASKS}
        reported = {"-": {}, "0": nothing, "=": self.owned.get(member_id, nothing)}[tasks]
        fields = DEFAULTS | reported | json.loads(" ".join(rest))
        fields |= {"memberId": member_id, "memberEpoch": sent_epoch(epoch, self.epochs.get(member_id, 0))}
        if fields["memberEpoch"] == 0 and fields["topology"] is None:
            return
        request = from_json("StreamsGroupHeartbeatRequest", int(version), fields)
        before = self.assigned(member_id)
        decision = self.streams.heartbeat(request, int(version), CLIENT, self.world.now_ms)
        result = decision.response
        assert isinstance(result, HeartbeatResult)
        response = to_json(result.response, 1)
        self.epochs[member_id] = max(response["memberEpoch"], 0)
        if response["activeTasks"] is not None:
            self.owned[member_id] = {kind: response[kind] for kind in TASKS}
        written = self.written(decision)
        if fields["memberEpoch"] > 0 and before == self.assigned(member_id):
            response |= dict.fromkeys(TASKS)  # Kafka does not tell a member its tasks again: a named deviation
        yield unordered(response)
        if result.topics_to_create:
            texts = (
                f"{topic.name}:{topic.number_of_partitions}:{topic.replication_factor or -1}"
                for topic in result.topics_to_create.values()
            )
            yield f"create {','.join(sorted(texts))}"
        yield from written
        assert not self.world.pass_time(0), "only the session of a member of a new group begins"

    def assigned(self, member_id: str) -> Any:
        """Return the tasks that a member has; None if there is no such member."""
        group = self.world.groups.get(GROUP)
        member = None if group is None else group.log.members.get(member_id)
        return None if member is None else member.assigned

    def commit(self, member_id: str, epoch: str, text: str) -> Iterator[Any]:
        group = self.streams._existing(GROUP)
        check = group.check_offset_commit(
            member_id, None, sent_epoch(epoch, self.epochs.get(member_id, 0)), version=10, is_transactional=False
        )
        for topic, partition in (each.split(":") for each in text.split(",")):
            if check is not None:
                check(topic, topic_id(topic), int(partition))
        yield "committed"

    def state(self) -> Any:
        """Return what the log holds of the group."""
        group = self.world.groups.get(GROUP)
        if group is None:
            return None
        log = group.log
        assert log.state.value == group.state_name
        return log.members, log.static_members, log.targets, log.metadata, log.assignment_epoch, log.topology, log.state

    def describe(self) -> Iterator[Any]:
        yield unordered(to_json(StreamsGroupDescribeResponse(groups=[self.streams.describe(GROUP)]), 1))

    def advance(self, duration_ms: str) -> Iterator[Any]:
        end_ms = self.world.now_ms + int(duration_ms)
        while True:
            group = self.world.groups.get(GROUP)
            deadline_ms = None if group is None else group.deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            yield from map(plain, self.world.pass_time(max(0, deadline_ms - self.world.now_ms)))
        self.world.now_ms = end_ms

    def remove(self) -> Iterator[Any]:
        self.streams._existing(GROUP)
        yield from self.written(self.world.shard.delete_group(GROUP))


def _config(key: str, value: str) -> tuple[str, Any]:
    name = f"group_streams_{key.replace('.', '_')}"
    return name, tuple(value.split(",")) if key.endswith("tags") else int(value)


def expected_of(line: str) -> Any:
    kind, _, rest = line.partition(" ")
    if kind in ("answer", "described"):
        return unordered(json.loads(rest))
    return plain_record(rest) if kind == "record" else line


def test_streams_groups_answer_and_write_as_apache_kafka() -> None:
    replayed = Replayed("")
    count = 0
    for operation, outcome in steps(GOLDEN):
        if operation.startswith("#"):
            before = replayed.state()
            replayed.world.restart()
            assert replayed.state() == before, "another coordinator reads something else in the log"
            replayed = Replayed(operation[2:])
            continue
        count += 1
        assert replayed.play(operation.split(" ")) == list(map(expected_of, outcome)), (count, operation)
    assert count > 3500
