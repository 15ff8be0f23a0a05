"""An endpoint for interactive queries: cases of Apache Kafka's EndpointToPartitionsManagerTest (4.3.1)."""

import pytest

from kafkapy.group.streams.configured_topology import (
    ConfiguredInternalTopic,
    ConfiguredSubtopology,
    ConfiguredTopology,
)
from kafkapy.group.streams.endpoints import Endpoints
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.tasks import AssignedTasks
from kafkapy.protocol.messages.streams_group_heartbeat_response import Endpoint, EndpointToPartitions
from tests.support.consumer_groups import image_of

READS_A = ConfiguredSubtopology(1, frozenset({"a"}))
READS_B = ConfiguredSubtopology(1, frozenset(), {"b": ConfiguredInternalTopic("b", 1, 1)})
ALL = frozenset({0, 1, 2})
Partitions = dict[str, list[int]]


def endpoint_of(
    assigned: AssignedTasks, topics: dict[str, int], **subtopologies: ConfiguredSubtopology
) -> tuple[Partitions, Partitions]:
    """Return the active partitions of a member's endpoint, and those of its copies."""
    member = StreamsMember("m", user_endpoint=UserEndpoint("localhost", 9092), assigned=assigned)
    numbered = {each.removeprefix("_"): subtopology for each, subtopology in subtopologies.items()}
    without_endpoint = StreamsMember("other", assigned=assigned)
    found: list[EndpointToPartitions] = Endpoints().of(
        [member, without_endpoint], ConfiguredTopology(0, numbered), image_of(**topics).topics
    )
    (endpoint,) = found
    assert endpoint.user_endpoint == Endpoint("localhost", port=9092)
    active, copies = (
        {each.topic: each.partitions for each in partitions}
        for partitions in (endpoint.active_partitions, endpoint.standby_partitions)
    )
    return active, copies


@pytest.mark.parametrize("role", ["standby", "warmup"])
def test_active_tasks_and_copies_are_told_apart(role: str) -> None:
    assigned = AssignedTasks({"0": dict.fromkeys(ALL, 0)}, **{role: {"1": ALL}})
    found = endpoint_of(assigned, {"a": 3, "b": 3}, _0=READS_A, _1=READS_B)
    assert found == ({"a": [0, 1, 2]}, {"b": [0, 1, 2]})


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [
        ({"a": 2, "b": 5}, {"a": [0, 1], "b": [0, 1, 2, 3, 4]}),
        ({"a": 3, "b": 3}, {"a": [0, 1, 2], "b": [0, 1, 2]}),
    ],
)
def test_a_task_has_the_partitions_of_its_number_that_there_are(topics: dict[str, int], partitions: Partitions) -> None:
    both = ConfiguredSubtopology(5, frozenset({"a", "b"}))
    assigned = AssignedTasks({"0": dict.fromkeys(range(5), 0)})
    assert endpoint_of(assigned, topics, _0=both) == (partitions, {})
