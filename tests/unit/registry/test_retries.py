"""A broker that is gone is named in a line, not in several a second, and the registry goes on at the next leader."""

import logging

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafkapy.registry.retries import RetryLog
from kafkapy.testing import Cluster
from tests.support.registries import AVRO, AVRO_2


def test_a_failure_is_logged_when_it_begins_changes_and_lasts(caplog):
    caplog.set_level(logging.INFO)
    log = RetryLog(logging.getLogger("kafkapy.registry"), "The group g")
    refused, lost = OSError("refused"), OSError("lost")
    for now_s, error in ((0.0, lost), (0.2, refused), (0.4, refused), (30.1, refused), (30.3, refused)):
        log.on_failure(error, now_s)
    log.on_success()
    log.on_success()
    log.on_failure(refused, 31.0)
    assert caplog.messages == [
        "The group g: lost",
        "The group g: refused",
        "The group g: refused",
        "The group g: it works again",
        "The group g: refused",
    ]


def test_the_registry_goes_on_when_the_leader_of_its_topic_stops(caplog):
    with (
        Cluster(3, in_process=True, registry=True) as cluster,
        SchemaRegistryClient({"url": cluster.schema_registry_url}) as client,
    ):
        assert client.register_schema("s", Schema(AVRO, "AVRO")) == 1
        stopped = cluster.leader_of("_schemas", 0)
        cluster.stop(stopped)
        assert client.register_schema("s", Schema(AVRO_2, "AVRO")) == 2
        assert client.get_versions("s") == [1, 2]
        assert cluster.leader_of("_schemas", 0) != stopped
    lines = [each.message for each in caplog.records if each.name == "kafkapy.registry"]
    assert len(lines) < 10, "a line for each change, not for each try"
