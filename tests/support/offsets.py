"""Requests about committed offsets in one line, for tests that speak to a broker through a WireClient."""

from typing import Any

from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.support.client_requests import until
from tests.support.wire import WireClient

TOPIC_IDS_SINCE = 10
BATCHED_SINCE = 8


def find_coordinator(client: WireClient, group_id: str) -> None:
    """Ask until the group has a coordinator that has loaded it."""

    def is_there() -> bool:
        if coordinator_of(client, group_id) < 0:
            return False
        requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])
        return bool(client.call(requested, 9).groups[0].error_code == 0)

    until(is_there)


def coordinator_of(client: WireClient, group_id: str) -> int:
    """Return the node, -1 while there is none."""
    (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 6).coordinators
    return int(found.node_id)


def commit_request(
    group_id: str, topic: str | bytes, *partitions: OffsetCommitRequestPartition | int, **fields: Any
) -> OffsetCommitRequest:
    """Commit to partition 0 what is given as a number. `topic` is a name, or an id for version 10."""
    name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
    requested = [
        OffsetCommitRequestPartition(0, committed_offset=each) if isinstance(each, int) else each for each in partitions
    ]
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name, topic_id=topic_id, partitions=requested)], **fields
    )


def commit(
    client: WireClient,
    group_id: str,
    topic: str | bytes,
    *partitions: OffsetCommitRequestPartition | int,
    version: int | None = None,
    **fields: Any,
) -> list[int]:
    """Commit and return the partitions' error codes."""
    used = version if version is not None else 9 if isinstance(topic, str) else TOPIC_IDS_SINCE
    (response,) = client.call(commit_request(group_id, topic, *partitions, **fields), used).topics
    return [partition.error_code for partition in response.partitions]


def fetch_group(
    client: WireClient,
    group_id: str,
    *topics: str | bytes,
    partitions: tuple[int, ...] = (0,),
    version: int | None = None,
    require_stable: bool = False,
    **fields: Any,
) -> Any:
    """Fetch the offsets of some topics, or of all without any; return the group's part of the response."""
    used = version if version is not None else TOPIC_IDS_SINCE if topics and isinstance(topics[0], bytes) else 9
    if used < BATCHED_SINCE:
        named = [OffsetFetchRequestTopic(str(topic), partition_indexes=list(partitions)) for topic in topics] or None
        return client.call(OffsetFetchRequest(group_id=group_id, topics=named, require_stable=require_stable), used)
    requested = [
        OffsetFetchRequestTopics(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            partition_indexes=list(partitions),
        )
        for topic in topics
    ]
    group = OffsetFetchRequestGroup(group_id, topics=requested or None, **fields)
    return client.call(OffsetFetchRequest(groups=[group], require_stable=require_stable), used).groups[0]


def committed(client: WireClient, group_id: str, topic: str | bytes, **options: Any) -> list[int]:
    """Return the committed offsets of the partitions asked for, -1 where there is none."""
    (response,) = fetch_group(client, group_id, topic, **options).topics
    return [partition.committed_offset for partition in response.partitions]


def delete_offsets(client: WireClient, group_id: str, topic: str, *partitions: int) -> Any:
    requested = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    request = OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic(topic, partitions=requested)])
    return client.call(request, 0)
