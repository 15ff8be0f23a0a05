"""Cases of Apache Kafka's own tests, and what holds each of them here: Raft, replication and groups.

tests/kafka_cases.tsv: class, case, and our tests, or "- " with the reason why there is none.
"""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = [line.split("\t") for line in (TESTS / "kafka_cases.tsv").read_text().splitlines()[1:]]
COUNTS = {
    "ChangelogTopicsTest": 7,
    "ClassicGroupMemberTest": 10,
    "ClassicGroupTest": 57,
    "ConfiguredInternalTopicTest": 5,
    "ConfiguredSubtopologyTest": 6,
    "ConfiguredTopologyTest": 7,
    "ConsumerGroupMemberTest": 12,
    "ConsumerGroupTest": 46,
    "CopartitionedTopicsEnforcerTest": 9,
    "CurrentAssignmentBuilderTest of consumer groups": 21,
    "CurrentAssignmentBuilderTest of streams groups": 21,
    "DefaultStatePersisterTest": 21,
    "DelayedShareFetchTest": 28,
    "EndpointToPartitionsManagerTest": 2,
    "GroupCoordinatorServiceTest": 128,
    "GroupCoordinatorShardTest": 62,
    "GroupMetadataManagerTest": 406,
    "InternalTopicManagerTest": 2,
    "KafkaRaftClientAutoJoinTest": 6,
    "KafkaRaftClientClusterAuthTest": 4,
    "KafkaRaftClientDriverTest": 2,
    "KafkaRaftClientFetchTest": 13,
    "KafkaRaftClientPreVoteTest": 24,
    "KafkaRaftClientReconfigTest": 58,
    "KafkaRaftClientSnapshotTest": 39,
    "KafkaRaftClientTest": 122,
    "LeaderStateTest": 25,
    "OffsetMetadataManagerTest": 89,
    "PartitionMaxBytesStrategyTest": 3,
    "PartitionRotateStrategyTest": 3,
    "PersisterStateBatchCombinerTest": 4,
    "PersisterStateManagerTest": 47,
    "ProcessStateTest": 9,
    "QuorumStateTest": 98,
    "RangeAssignorTest": 14,
    "RecordStateTest": 2,
    "RepartitionTopicsTest": 7,
    "ReplicationControlManagerTest": 58,
    "ResolvedRegularExpressionTest": 2,
    "ShareCoordinatorOffsetsManagerTest": 4,
    "ShareCoordinatorRecordHelpersTest": 3,
    "ShareCoordinatorRecordSerdeTest": 11,
    "ShareCoordinatorServiceTest": 38,
    "ShareCoordinatorShardTest": 37,
    "ShareFetchTest": 9,
    "ShareFetchUtilsTest": 15,
    "ShareGroupAssignmentBuilderTest": 3,
    "ShareGroupMemberTest": 5,
    "ShareGroupTest": 19,
    "SharePartitionCacheTest": 2,
    "SharePartitionManagerTest": 59,
    "SharePartitionTest": 260,
    "ShareSessionCacheTest": 8,
    "ShareSessionKeyTest": 3,
    "ShareSessionTest": 2,
    "SimpleAssignorTest": 16,
    "StickyTaskAssignorTest": 41,
    "StreamsCoordinatorRecordHelpersTest": 41,
    "StreamsGroupMemberTest": 12,
    "StreamsGroupTest": 42,
    "StreamsTopologyTest": 11,
    "TargetAssignmentBuilderTest of consumer groups": 9,
    "TargetAssignmentBuilderTest of streams groups": 10,
    "TasksTupleTest": 5,
    "TasksTupleWithEpochsTest": 9,
    "TopicRegexResolverTest": 3,
    "TopologyMetadataTest": 7,
    "UniformHeterogeneousAssignmentBuilderTest": 13,
    "UniformHomogeneousAssignmentBuilderTest": 12,
}
"""Of 4.3.1."""


def test_each_case_is_there_once() -> None:
    assert len({(name, case) for name, case, _ in ROWS}) == len(ROWS)
    assert {name: sum(row[0] == name for row in ROWS) for name in COUNTS} == COUNTS


def test_each_test_that_is_named_exists() -> None:
    held = {each for *_, tests in ROWS if not tests.startswith("- ") for each in tests.split(" ")}
    assert held
    for each in sorted(held):
        path, name = each.split("::")
        assert re.search(rf"^ *(async )?def {name}\(", (TESTS.parent / path).read_text(), re.MULTILINE), each


def test_each_case_that_is_recorded_is_of_kafkas_test() -> None:
    """tests/golden/share_partition_cases.txt has cases of SharePartitionTest, and some of our own, which are words."""
    lines = (TESTS / "golden" / "share_partition_cases.txt").read_text().splitlines()
    recorded = {line.removeprefix("== ") for line in lines if line.startswith("== test")}
    golden = "tests/golden/test_share_partitions.py::"
    assert recorded == {case for name, case, tests in ROWS if name == "SharePartitionTest" and golden in tests}
