"""The keys by which a share partition's state is found."""

from kafkapy.share.persister import SharePartitionKey
from kafkapy.types import ONE_UUID


def test_a_coordinator_key_is_group_topic_id_and_partition() -> None:
    assert SharePartitionKey("gs1", ONE_UUID, 3).coordinator_key == "gs1:AAAAAAAAAAAAAAAAAAAAAQ:3"


def test_a_group_id_may_contain_colons() -> None:
    assert SharePartitionKey("a:b", ONE_UUID, 0).coordinator_key == "a:b:AAAAAAAAAAAAAAAAAAAAAQ:0"
