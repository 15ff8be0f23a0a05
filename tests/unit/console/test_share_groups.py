"""Share groups in the console: what they have in flight, and why; reset and deleted behind --allow-changes."""

import re
import time
from contextlib import contextmanager

import confluent_kafka as kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console.app import new_app
from kafkapy.console.groups import Group
from kafkapy.console.settings import Settings
from kafkapy.console.share_groups import in_flight
from tests.support.console_pages import OWN, post

GROUP, TOPIC = "workers", "jobs"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server():
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        producer = kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
        for number in range(10):
            producer.produce(TOPIC, str(number))
        assert producer.flush(30) == 0
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def page(server):
    with TestClient(new_app(Settings(servers=server, allow_changes=True)), base_url=OWN) as client:
        client.get("/charts")
        yield client


@contextmanager
def worker(server):
    """A member that has been given all records, whose client id is not to be trusted."""
    settings = {"bootstrap.servers": server, "group.id": GROUP, "client.id": HOSTILE, "log_level": 0}
    with kafka.ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        messages = []
        while not messages:
            assert time.monotonic() < deadline
            messages = consumer.poll(0.5)
        for message in messages[:4]:
            consumer.acknowledge(message, kafka.AcknowledgeType.ACCEPT)
        for message in messages[4:]:
            consumer.acknowledge(message, kafka.AcknowledgeType.RELEASE)
        yield consumer


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_what_is_in_flight_is_shown_then_moved_and_deleted(page, server) -> None:
    with worker(server) as consumer:
        held = page.get(f"/group?name={GROUP}").text
        refused = post(page, "reset-offsets", name=GROUP, topic=TOPIC, to="earliest", confirmed=1)
        consumer.commit_sync()
        released = text_of(page.get(f"/group?name={GROUP}").text)
    assert HOSTILE not in held
    shown = text_of(held)
    assert re.search(r"In flight .* jobs 0 0 10 2.?000 10 .*0-9 is acquired by .* until .*: delivery 1 of 5", shown)
    assert re.search(r"jobs 0 0-9 acquired 1 of 5 &lt;script&gt;alert\(1\)&lt;/script&gt; \(/127", shown)
    assert "joined" in shown, "its rebalances are told, too"
    assert (refused.status_code, "has members" in refused.text) == (502, True)
    assert re.search(r"4-9 is available, and failed 1 of 5 times|4-9 is acquired by", released)
    assert "workers" in text_of(page.get("/groups").text)
    planned = text_of(page.get("/group/reset", params={"name": GROUP, "topic": TOPIC, "to": "2"}).text)
    assert re.search(r"jobs 0 0 2 \+2", planned), "the start as it was written: with the next write it is 4"
    done = post(page, "reset-offsets", name=GROUP, topic=TOPIC, to="2", confirmed=1)
    assert done.url.params["done"] == "Reset."
    assert re.search(r"jobs 0 2 10 8", text_of(page.get(f"/group?name={GROUP}").text))
    post(page, "delete-group", name=GROUP, confirmed=1, typed=GROUP)
    assert page.get(f"/group?name={GROUP}").status_code == 404


def test_a_cluster_that_does_not_tell_is_a_note(server) -> None:
    class Silent:
        """A broker as Apache Kafka's: it skips the tag."""

        def call(self, node_id: int | None, request: object, version: int) -> object:
            from kafkapy.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
            from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker

            if node_id is None:
                return MetadataResponse(brokers=[MetadataResponseBroker(1, host="h", port=1)])
            return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g")])

    told = in_flight(Silent(), Group("g", "Share", "Stable", "simple", 1, (), ()))
    assert told.problem == "The brokers do not tell what is in flight: they are no kafkapy brokers, or older ones."
