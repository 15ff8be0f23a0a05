"""What a registry does not write or read: after another one has begun to lead; of a topic that loses schemas."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("fastavro")

from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy.registry.cluster import Cluster, ClusterError
from kafkapy.registry.errors import RegistryError
from kafkapy.registry.fence import Fence
from kafkapy.registry.registry import Registry
from kafkapy.registry.request import schema_request
from kafkapy.registry.schemas_topic import SchemasTopic
from kafkapy.registry.state import RegistryState
from tests.support.client_requests import until
from tests.support.registries import AVRO, AVRO_2


class Term:
    """Of an election that a test says."""

    def __init__(self) -> None:
        self.number = 1

    def __call__(self) -> int:
        return self.number


@contextmanager
def leading(bootstrap: str, topic: str) -> Iterator[tuple[Registry, SchemasTopic, Term]]:
    """A registry that takes itself for the leader, as one whose lease ends while a write is under way."""
    cluster, term = Cluster(bootstrap), Term()
    store = SchemasTopic(cluster, RegistryState(), topic, may_write=lambda: True, fence=Fence(cluster, topic, term))
    store.start()
    try:
        yield Registry(store), store, term
    finally:
        store.stop()


def register(registry: Registry, subject: str, schema: str = AVRO) -> int:
    return registry.register(subject, schema_request({"schema": schema}), normalize=False).id


def test_what_a_leader_decided_before_the_next_one_led_is_not_written(bootstrap, topic, monkeypatch) -> None:
    with leading(bootstrap, topic) as (first, store, _), leading(bootstrap, topic) as (second, _, _):
        assert register(first, "one") == 1
        append = store.append

        def append_late(records) -> None:
            monkeypatch.undo()
            assert register(second, "two", json.dumps("string")) == 2
            append(records)

        monkeypatch.setattr(store, "append", append_late)
        with pytest.raises(RegistryError, match="Leader not known"):
            register(first, "three", AVRO_2)
        assert register(second, "four", AVRO_2) == 3
        first.catch_up()
        assert [each.id for each in first.state.versions("two")] == [2]
        assert first.state.versions("three") == []


def test_a_topic_whose_records_are_deleted_with_time_is_refused(bootstrap, topic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic(topic, 1, config={"cleanup.policy": "delete"})]).values():
        each.result()
    with pytest.raises(ClusterError, match=r"cleanup\.policy=delete, which deletes schemas with time"):
        SchemasTopic(Cluster(bootstrap), RegistryState(), topic, may_write=lambda: True).start()


def test_a_leader_that_leads_again_writes_again(bootstrap, topic) -> None:
    with leading(bootstrap, topic) as (first, _, term), leading(bootstrap, topic) as (second, _, _):
        assert register(first, "one") == 1
        assert register(second, "two", AVRO_2) == 2
        term.number += 1
        assert register(first, "three", json.dumps("string")) == 3
        with pytest.raises(RegistryError, match="Leader not known"):
            register(second, "four", json.dumps("int"))
        assert register(second, "four", json.dumps("int")) == 4, "if it is the leader, its next write claims the epoch"


def test_nothing_is_written_to_a_topic_that_was_made_again(bootstrap, topic) -> None:
    """What was read is gone: who reads the topic from its start would find the next ids at other schemas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with leading(bootstrap, topic) as (registry, store, term):
        assert register(registry, "one") == 1
        for each in admin.delete_topics([topic]).values():
            each.result()
        new = NewTopic(topic, 1, config={"cleanup.policy": "compact"})
        until(lambda: admin.create_topics([new])[topic].exception() is None)
        term.number += 1
        with pytest.raises(RegistryError, match="lost records that were read"):
            register(registry, "two", AVRO_2)
        with pytest.raises(RegistryError, match="lost records that were read"):
            store.catch_up()


def test_without_an_epoch_the_lease_has_to_do(bootstrap, topic, caplog) -> None:
    cluster = Cluster(bootstrap)
    store = SchemasTopic(cluster, RegistryState(), topic, may_write=lambda: True, fence=Fence(cluster, "", Term()))
    store.start()
    with caplog.at_level(logging.WARNING, "kafkapy.registry"):
        assert register(Registry(store), "one") == 1
        assert register(Registry(store), "two", AVRO_2) == 2
    store.stop()
    assert [each.message[:41] for each in caplog.records] == ["No producer epoch of the transactional id"]
