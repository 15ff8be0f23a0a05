"""The cases of Apache Kafka's KafkaRaftClient*Test, LeaderStateTest, QuorumStateTest and ReplicationControlManagerTest,
and what holds each of them here.

tests/kafka_cases.tsv: class, case, and our tests, or "- " with the reason why there is none.
"""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = [line.split("\t") for line in (TESTS / "kafka_cases.tsv").read_text().splitlines()[1:]]
COUNTS = {
    "KafkaRaftClientAutoJoinTest": 6,
    "KafkaRaftClientClusterAuthTest": 4,
    "KafkaRaftClientDriverTest": 2,
    "KafkaRaftClientFetchTest": 13,
    "KafkaRaftClientPreVoteTest": 24,
    "KafkaRaftClientReconfigTest": 58,
    "KafkaRaftClientSnapshotTest": 39,
    "KafkaRaftClientTest": 122,
    "LeaderStateTest": 25,
    "QuorumStateTest": 98,
    "ReplicationControlManagerTest": 58,
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
        assert re.search(rf"^(async )?def {name}\(", (TESTS.parent / path).read_text(), re.MULTILINE), each
