"""A member of a streams group that speaks through a WireClient: topologies, and one heartbeat each."""

from typing import Any

from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.client_requests import until
from tests.support.wire import WireClient

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")


def reading(*topics: str, epoch: int = 0, **fields: Any) -> Topology:
    """Return a topology of one subtopology that reads these topics."""
    return Topology(epoch, subtopologies=[Subtopology("0", source_topics=list(topics), **fields)])


def with_changelog(topic: str, changelog: str, partitions: int = 0, replication_factor: int = 0) -> Topology:
    info = TopicInfo(changelog, partitions=partitions, replication_factor=replication_factor)
    return reading(topic, state_changelog_topics=[info])


def grouped(topic: str, by_key: str, changelog: str) -> Topology:
    """Return a topology that groups a topic's records by key, with a repartition topic, and keeps a store of them."""
    reads = Subtopology("0", source_topics=[topic], repartition_sink_topics=[by_key])
    keeps = Subtopology(
        "1", repartition_source_topics=[TopicInfo(by_key)], state_changelog_topics=[TopicInfo(changelog)]
    )
    return Topology(0, subtopologies=[reads, keeps])


def joined_topics(*topics: str) -> Topology:
    """Return a topology that joins topics, which need the same number of partitions."""
    return reading(*topics, copartition_groups=[CopartitionGroup(list(range(len(topics))))])


def describe(client: WireClient, group_id: str, version: int = 1) -> Any:
    (group,) = client.call(StreamsGroupDescribeRequest(group_ids=[group_id]), version).groups
    return group


class StreamsMember:
    """A member that keeps its epoch and reports the tasks it was given last."""

    def __init__(self, client: WireClient, group_id: str, member_id: str = "m", **fields: Any) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = member_id
        self.fields = fields
        self.epoch = 0
        self.tasks: dict[str, Any] = {name: [] for name in TASKS}

    def heartbeat(self, version: int = 1, **fields: Any) -> Any:
        values = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            **self.tasks,
            **self.fields,
            **fields,
        }
        response = self.client.call(StreamsGroupHeartbeatRequest(**values), version)
        if response.error_code == 0:
            self.epoch = max(response.member_epoch, 0)
            if response.active_tasks is not None:
                self.tasks = {
                    name: [TaskIds(each.subtopology_id, partitions=each.partitions) for each in getattr(response, name)]
                    for name in TASKS
                }
        return response

    def join(self, topology: Topology, **fields: Any) -> Any:
        """Send a heartbeat that joins, with nothing owned."""
        self.tasks = {name: [] for name in TASKS}
        process = f"process of {self.member_id}"
        values = {"rebalance_timeout_ms": 60_000, "process_id": process, "topology": topology, **fields}
        return self.heartbeat(member_epoch=JOINS, **values)

    def run(self, topology: Topology) -> None:
        """Join, and stay until there are tasks to run."""
        assert self.join(topology).error_code == 0
        until(lambda: self.heartbeat().error_code == 0 and bool(self.active))

    def leave(self, epoch: int = LEAVES) -> Any:
        return self.heartbeat(member_epoch=epoch)

    @property
    def active(self) -> dict[str, list[int]]:
        return {each.subtopology_id: each.partitions for each in self.tasks["active_tasks"]}
