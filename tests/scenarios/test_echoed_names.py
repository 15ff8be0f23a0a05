"""What a response repeats of names that cannot be names: all of it, as clients look for their own names in it.

A name is in a response once, and once more in its error message, so a response is at most twice as long as its request.
"""

import struct

import pytest

from tests.support.authorization_script import Fields, request
from tests.support.client_requests import until
from tests.support.wire import WireClient, request_frame

LONG = "x" * 30_000
"""Topics have 249 characters at most. A message with the name still fits into a string."""
ONCE: list[tuple[str, int, Fields]] = [
    ("Metadata", 12, {"topics": [{"name": LONG}]}),
    ("DescribeTopicPartitions", 0, {"topics": [{"name": LONG}]}),
    ("DeleteTopics", 6, {"topics": [{"name": LONG}], "timeout_ms": 1000}),
    ("CreatePartitions", 3, {"topics": [{"name": LONG, "count": 2}], "timeout_ms": 1000}),
    ("ListOffsets", 9, {"topics": [{"name": LONG, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
    ("FindCoordinator", 6, {"key_type": 0, "coordinator_keys": [LONG]}),
    (
        "ConsumerGroupHeartbeat",
        1,
        {
            "group_id": "echoed",
            "member_id": "m",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_regex": f"({LONG}",
            "topic_partitions": [],
        },
    ),
]
TWICE: list[tuple[str, int, Fields]] = [
    ("CreateTopics", 7, {"topics": [{"name": LONG, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": LONG, "configuration_keys": None}]}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 4, "resource_name": LONG, "configuration_keys": None}]}),
    ("DescribeProducers", 0, {"topics": [{"name": LONG, "partition_indexes": [0]}]}),
    ("DescribeGroups", 6, {"groups": [LONG]}),
    ("ConsumerGroupDescribe", 1, {"group_ids": [LONG]}),
    ("ElectLeaders", 2, {"topic_partitions": [{"topic": LONG, "partitions": [0]}], "timeout_ms": 1000}),
    ("DescribeUserScramCredentials", 0, {"users": [{"name": LONG}]}),
]


@pytest.mark.parametrize(
    ("api", "version", "fields", "times"), [(*case, 1) for case in ONCE] + [(*case, 2) for case in TWICE]
)
def test_a_name_is_repeated_in_the_response_and_its_message(
    client: WireClient, group: str, api: str, version: int, fields: Fields, times: int
) -> None:
    frame = request_frame(request(api, fields), version, correlation_id=1)
    responses: list[bytes] = []

    def is_answered() -> bool:
        """Whether the coordinator is loaded, if it is one that answers."""
        client.send_bytes(struct.pack(">i", len(frame)) + frame)
        responses.append(client.receive_frame())
        return responses[-1].count(LONG.encode()) == times

    until(is_answered)
    assert len(responses[-1]) < len(frame) * times + 200
