"""Requests in one line, for tests that speak to a broker through a WireClient; one partition unless said otherwise."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kafkapy.protocol.messages import describe_quorum_request
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.types import ReplicaKey
from tests.support.batches import build_batch
from tests.support.wire import WireClient

READ_COMMITTED = 1
EARLIEST, LATEST = -2, -1
MAX_BYTES = 1 << 20
UNKNOWN_TOPIC_OR_PARTITION = 3


def until(is_done: Callable[[], bool]) -> None:
    """Poll a condition for at most a minute: for what a broker does in its own time."""
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline


# -- topics ---------------------------------------------------------------------------------------------------------


def create_topic(client: WireClient, name: str, partition_count: int = 1, **configs: str) -> bytes:
    """Create a topic, wait until it can be written to, and return its id. Configs: cleanup_policy="compact".

    Apache Kafka's controller answers before its broker leads the partitions.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics
    assert result.error_code == 0, result
    for partition in range(partition_count):
        until(lambda: list_offset(client, name, LATEST, partition=partition).error_code == 0)  # noqa: B023
    return bytes(result.topic_id)


def delete_topic(client: WireClient, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    (result,) = client.call(request, 6).responses
    assert result.error_code == 0, result
    until(lambda: list_offset(client, name, LATEST).error_code == UNKNOWN_TOPIC_OR_PARTITION)


def describe_topic(client: WireClient, name: str) -> Any:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    (topic,) = client.call(request, 0).topics
    return topic


def metadata(client: WireClient, *names: str, version: int = 13, is_creation_allowed: bool = False) -> Any:
    """Ask for some topics; without names, for all of them. Before version 4 topics are always created."""
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    may_create = is_creation_allowed or version < 4
    return client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=may_create), version)


def partition_counts(bootstrap_servers: str) -> dict[str, int]:
    """Return the number of partitions of each topic, by name."""
    with WireClient(bootstrap_servers) as client:
        return {topic.name: len(topic.partitions) for topic in metadata(client).topics}


# -- produce --------------------------------------------------------------------------------------------------------


def batch_of(count: int = 1, *, value: bytes = b"value", key: bytes | None = None, **fields: Any) -> bytes:
    """Return one batch of `count` records that are alike, of now: old ones expire, and the producer with them."""
    now_ms = int(time.time() * 1000)
    return build_batch([(now_ms, key, value, ())] * count, **fields)


def produce_request(topic: str | bytes, records: bytes | None, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    """`topic` is a name, or an id for version 13."""
    data = [PartitionProduceData(partition, records=records)]
    name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name, topic_id=topic_id, partition_data=data)]
    )


def produce(
    client: WireClient, topic: str | bytes, records: bytes | None, *, version: int | None = None, **options: Any
) -> Any:
    """Produce records to a partition and return its response."""
    used = version if version is not None else 12 if isinstance(topic, str) else 13
    response = client.call(produce_request(topic, records, **options), used)
    return response.responses[0].partition_responses[0]


# -- fetch ----------------------------------------------------------------------------------------------------------


def fetch_topic(topic: str | bytes, *requested: FetchPartition) -> FetchTopic:
    name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
    return FetchTopic(name, topic_id=topic_id, partitions=list(requested))


def fetch_partition(
    offset: int = 0, *, partition: int = 0, max_bytes: int = MAX_BYTES, **fields: Any
) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def fetch_request(topic: str | bytes, offset: int = 0, **options: Any) -> FetchRequest:
    """Ask for one partition; options are those of fetch_partition and, of the request, its own."""
    of_partition: dict[str, Any] = {
        name: options.pop(name)
        for name in ("partition", "current_leader_epoch", "last_fetched_epoch")
        if name in options
    }
    of_partition["max_bytes"] = options.pop("partition_max_bytes", MAX_BYTES)
    return FetchRequest(topics=[fetch_topic(topic, fetch_partition(offset, **of_partition))], **options)


def fetch(
    client: WireClient, topic: str | bytes, offset: int = 0, *, version: int | None = None, **options: Any
) -> Any:
    """Fetch a partition and return its response."""
    used = version if version is not None else 12 if isinstance(topic, str) else 18
    response = client.call(fetch_request(topic, offset, **options), used)
    assert response.error_code == 0, response
    return response.responses[0].partitions[0]


def batches_in(response: Any) -> list[Any]:
    return list(batches(response.records)) if response.records else []


def values_in(response: Any) -> list[bytes | None]:
    return [record.value for batch in batches_in(response) for record in batch.records()]


def consume(
    client: WireClient,
    topic: str | bytes,
    *,
    offset: int,
    end_offset: int,
    partition: int = 0,
    isolation_level: int = 0,
) -> Iterator[Record]:
    """Yield the records that a consumer hands out between two offsets."""
    while offset < end_offset:
        response = fetch(client, topic, offset, partition=partition, isolation_level=isolation_level, max_wait_ms=1000)
        assert response.error_code == 0, response
        assert response.records, f"nothing at {offset} of {end_offset}"
        for batch in kept_batches(response):
            yield from (record for record in batch.records() if offset <= record.offset < end_offset)
        offset = batches_in(response)[-1].next_offset


def kept_batches(response: Any) -> Iterator[Any]:
    """Yield the batches whose records an application sees: no markers, nothing of the aborted transactions listed."""
    to_come = sorted(response.aborted_transactions or (), key=lambda entry: entry.first_offset)
    aborting: set[int] = set()
    for batch in batches_in(response):
        while to_come and to_come[0].first_offset <= batch.last_offset:
            aborting.add(to_come.pop(0).producer_id)
        if batch.is_control:
            aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


# -- offsets --------------------------------------------------------------------------------------------------------


def list_offset(
    client: WireClient,
    topic: str,
    timestamp: int,
    *,
    version: int = 11,
    partition: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> Any:
    """Ask for one offset and return the partition's response."""
    requested = ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=current_leader_epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        -1, isolation_level=isolation_level, topics=[ListOffsetsTopic(topic, partitions=[requested])]
    )
    return client.call(request, version).topics[0].partitions[0]


# -- the quorum -----------------------------------------------------------------------------------------------------


def local_voter(client: WireClient) -> ReplicaKey:
    """Return the only voter."""
    partition = describe_quorum_request.PartitionData(partition_index=0)
    topic = describe_quorum_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    response = client.call(describe_quorum_request.DescribeQuorumRequest(topics=[topic]), 2)
    (voter,) = response.topics[0].partitions[0].current_voters
    return ReplicaKey(voter.replica_id, voter.replica_directory_id)
