from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.cluster import describe_log_dirs
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch
from tests.support.metadata_services import Deny, response_of


def describe(hosting: Hosting, topics: Any = None, version: int = 5, authorizer: Any = None) -> Any:
    context: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", client_id="tester")
    requested = DescribeLogDirsRequest(topics=topics)
    response = response_of(describe_log_dirs.handle(hosting.services(authorizer), context, requested))
    return type(response).decode(response.encode(version), version)


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_version_returns_directories_partitions_and_sizes(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(partition_count=2)
    partition.log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=NOW_MS)
    (directory,) = describe(hosting, version=version).results
    (topic,) = directory.topics
    reported = [
        (each.partition_index, each.partition_size, each.offset_lag, each.is_future_key) for each in topic.partitions
    ]
    assert (directory.log_dir, directory.error_code, topic.name) == ("/data", 0, "orders")
    assert reported == [(0, len(batch(b"a")), 0, False), (1, 0, 0, False)]
    assert (directory.total_bytes > 0, directory.usable_bytes >= 0) == (version >= 4, version >= 4)
    assert not directory.is_cordoned


async def test_only_requested_partitions_that_are_here_are_returned(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=3)
    hosting.create_topic("trades")
    requested = [DescribableLogDirTopic("orders", partitions=[1, 9]), DescribableLogDirTopic("nowhere", partitions=[0])]
    (directory,) = describe(hosting, requested).results
    assert [(each.name, [part.partition_index for part in each.partitions]) for each in directory.topics] == [
        ("orders", [1])
    ]
    assert describe(hosting, []).results[0].topics == []


async def test_a_directory_that_failed_says_so(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    hosting.log_manager.directories[0].state.go_offline("test")
    (directory,) = describe(hosting).results
    assert (directory.error_code, directory.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


async def test_it_needs_the_right_to_describe_the_cluster(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    denied = Deny((AclOperation.DESCRIBE, "kafka-cluster"))
    response = describe(hosting, authorizer=denied)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
