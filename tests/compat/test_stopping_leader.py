"""What a consumer that waits for records is told by a leader that stops without a controlled shutdown."""

import threading

import pytest

from kafkapy import Cluster
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.client_requests import fetch
from tests.support.replicated_topics import create, produce
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = [pytest.mark.long, pytest.mark.ours]
PROPERTIES = {
    "controlled.shutdown.enable": "false",
    "broker.session.timeout.ms": 300,
    "broker.heartbeat.interval.ms": 50,
}
"""Those of ConsumerBounceTest, which says what Apache Kafka does: it closes all connections at once."""


def codes_until_closed(client: WireClient, topic_id: bytes, leader_epoch: int) -> list[int]:
    """Fetch from the end of the log again and again, as consumers do; return what was answered."""
    codes = []
    try:
        while True:
            response = fetch(client, topic_id, 1, max_wait_ms=500, min_bytes=1, current_leader_epoch=leader_epoch)
            codes.append(response.error_code)
    except (OSError, ConnectionClosed):
        return codes


def test_it_is_not_told_of_the_next_leader_by_the_last_one() -> None:
    with Cluster(3, properties=PROPERTIES) as cluster:
        create(cluster, "watched")
        assert produce(cluster.bootstrap_servers, "watched") is None
        leader = cluster.leader_of("watched")
        with WireClient(cluster.address_of(leader)) as client:
            (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="watched")]), 12).topics
            stop = threading.Timer(0.1, lambda: cluster.stop(leader))
            stop.start()
            codes = codes_until_closed(client, topic.topic_id, topic.partitions[0].leader_epoch)
            stop.join()
    assert set(codes) <= {ErrorCode.NONE}, codes
