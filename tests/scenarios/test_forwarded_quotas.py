"""Quotas where a broker passes requests on to a controller on another node: it counts, the broker in front mutes."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafkapy import Cluster
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.client_requests import describe_topic, metadata, until
from tests.support.quotas import remove_quotas, set_quotas
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

EXCEEDED, UNKNOWN_TOPIC = 89, 3
RATE = 0.01
BURST = 11 * RATE

Connect = Callable[[], WireClient]


@pytest.fixture(scope="module")
def separate() -> Iterator[str]:
    """A broker, and a controller that is another node."""
    with Cluster(1, controller_count=1, in_process=True) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def open_to(separate: str) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(WireClient(separate))
    remove_quotas(separate)


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


MUTED_S = 0.95
"""Of the second that request_percentage mutes for."""


def assert_muted_since(client: WireClient, sent_s: float) -> None:
    client.call(ApiVersionsRequest(), 0)
    assert time.monotonic() - sent_s >= MUTED_S


def set_and_wait(connect: Connect, topic: str, **quotas: float) -> None:
    """Both nodes have the quotas once the broker has: the controller had them first."""
    set_quotas(connect(), topic, **quotas)
    set_quotas(connect(), f"probe-{topic}", request_percentage=0.0001)
    until(lambda: connect().call(ApiVersionsRequest(), 2, client_id=f"probe-{topic}").throttle_time_ms > 0)


def test_the_controller_counts_mutations_and_the_broker_mutes(open_to: Connect, topic: str) -> None:
    set_and_wait(open_to, topic, controller_mutation_rate=RATE)
    first = open_to().call(creation(f"{topic}-1"), 7, client_id=topic)
    assert ([each.error_code for each in first.topics], first.throttle_time_ms) == ([0], 0)
    client = open_to()
    second = client.call(creation(f"{topic}-2"), 7, client_id=topic)
    assert [each.error_code for each in second.topics] == [EXCEEDED]
    assert second.throttle_time_ms == pytest.approx((1 - BURST) / RATE * 1000, rel=0.3)
    client.send(ApiVersionsRequest(), 0)
    assert not client.has_response(0.2), "muted for a minute and a half"


def test_auto_created_topics_are_refused(open_to: Connect, topic: str) -> None:
    set_and_wait(open_to, topic, controller_mutation_rate=RATE)
    open_to().call(creation(topic), 7, client_id=topic)
    for _ in range(3):
        requested = metadata_of(open_to(), f"{topic}-unmade", client_id=topic)
        assert requested.topics[0].error_code == UNKNOWN_TOPIC
    metadata(open_to(), f"{topic}-made", is_creation_allowed=True)
    until(lambda: describe_topic(open_to(), f"{topic}-made").error_code == 0)
    assert describe_topic(open_to(), f"{topic}-unmade").error_code == UNKNOWN_TOPIC


def metadata_of(client: WireClient, name: str, *, client_id: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return client.call(request, 9, client_id=client_id)


def test_time_is_counted_on_both_nodes(open_to: Connect, topic: str) -> None:
    set_and_wait(open_to, topic, request_percentage=0.0001)
    client, sent_s = open_to(), time.monotonic()
    assert client.call(ListPartitionReassignmentsRequest(), 0, client_id=topic).throttle_time_ms == 1000
    assert_muted_since(client, sent_s)


def test_a_response_without_a_throttle_time_comes_as_it_was(open_to: Connect, topic: str) -> None:
    set_and_wait(open_to, topic, request_percentage=0.0001)
    client, sent_s = open_to(), time.monotonic()
    assert client.call(DescribeQuorumRequest(), 2, client_id=topic).error_code == 0
    assert_muted_since(client, sent_s)
