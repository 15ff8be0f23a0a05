"""What groups had committed with Apache Kafka 4.3.1 is served from its data directories, also after kill -9."""

import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from tests.support.offsets import commit, fetch_group, find_coordinator
from tests.support.wire import WireClient

GOLDEN = Path(__file__).parent
COMMITTED = {
    "x": {
        ("codec-gzip", 0): 200,
        ("codec-lz4", 0): 200,
        ("codec-snappy", 0): 200,
        ("codec-zstd", 0): 200,
        ("compacted", 0): 400,
        ("plain", 0): 4500,
        ("plain", 1): 4500,
        ("txn", 0): 66,
    },
    "g1": {("codec-gzip", 0): 100},
}
"""As the records in the directories say: x by a consumer that was assigned its partitions, g1 by a member."""


@pytest.fixture(params=["clean", "unclean"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kafkapy]:
    with tarfile.open(GOLDEN / f"kafka_data_dir_{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with Kafkapy(tmp_path / "data") as running:
        yield running


def offsets(client: WireClient, group_id: str) -> dict[tuple[str, int], int]:
    find_coordinator(client, group_id)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in fetch_group(client, group_id).topics
        for partition in topic.partitions
    }


def test_offsets_are_served_and_kept_with_what_is_committed_later(broker: Kafkapy) -> None:
    with WireClient(broker.bootstrap) as client:
        assert {group_id: offsets(client, group_id) for group_id in COMMITTED} == COMMITTED
        assert commit(client, "x", "txn", 60) == [0]
    broker.stop(signal.SIGKILL)
    broker.start()
    with WireClient(broker.bootstrap) as client:
        assert offsets(client, "x") == {**COMMITTED["x"], ("txn", 0): 60}
        assert offsets(client, "g1") == COMMITTED["g1"]


def test_groups_are_listed_and_described(broker: Kafkapy) -> None:
    with WireClient(broker.bootstrap) as client:
        find_coordinator(client, "x")
        find_coordinator(client, "g1")
        listed = client.call(ListGroupsRequest(), 5).groups
        found = {(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed}
        assert found == {("x", "", "Empty", "classic"), ("g1", "consumer", "Empty", "classic")}
        described = client.call(DescribeGroupsRequest(groups=["g1"]), 6).groups[0]
        assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
