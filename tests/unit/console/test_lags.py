"""The lag of groups over time: kept for an hour, bounded, and asked for without a page."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka as kafka

from kafkapy import Broker
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.lags import MAX_GROUPS, LagSamples, LagWatch
from kafkapy.console.samples import HOUR_S
from kafkapy.console.settings import Settings
from tests.support.eventually import eventually


@contextmanager
def watching(settings: Settings, lags: LagSamples) -> Iterator[LagWatch]:
    brokers = Brokers(settings)
    yield LagWatch(Clients(settings, brokers), lags)
    brokers.close()


def test_the_lags_of_the_groups_shown_last_are_kept() -> None:
    lags = LagSamples()
    for number, now_s in itertools.product(range(MAX_GROUPS + 1), (1.0, 1.5, 9.0)):
        lags.record(f"g{number}", number, now_s)
    assert lags.of("g0") == []
    assert lags.of("g5") == [(1.0, 5.0), (9.0, 5.0)]
    assert lags.names()[:2] == [f"g{MAX_GROUPS}", f"g{MAX_GROUPS - 1}"]


def test_no_group_that_was_shown_makes_way_for_one_that_was_not() -> None:
    lags = LagSamples()
    for number in range(MAX_GROUPS - 1):
        lags.record(f"g{number}", 1, 1.0)
    lags.record_unseen("first", {"orders": 1}, 1.0)
    lags.record_unseen("second", {"orders": 1}, 1.0)
    assert lags.of("first")
    assert not lags.of("second")
    assert lags.of("g0")


def test_the_lag_of_a_topic_is_not_shown_as_it_was_before_a_leader_fell_silent() -> None:
    lags = LagSamples()
    for group in ("first", "second"):
        lags.record_unseen(group, {"orders": 5, "clicks": 2}, 1.0)
    assert lags.topics() == {"orders": 10, "clicks": 4}
    lags.record_unseen("second", {"orders": None, "clicks": 3}, 16.0)
    assert lags.topics() == {"clicks": 5}
    assert lags.of("second") == [(1.0, 7.0)]


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    lags = LagSamples()
    lags.record("gone", 5, 100.0)
    lags.record("here", 5, 100.0)
    lags.record("here", 6, 101.0 + HOUR_S)
    lags.drop_old(101.0 + HOUR_S)
    assert lags.names() == ["here"]
    assert lags.of("here") == [(101.0 + HOUR_S, 6.0)]


def test_the_lag_of_a_group_that_no_page_showed_is_requested() -> None:
    with Broker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = kafka.Producer(servers)
        for number in range(30):
            producer.produce("records", str(number), partition=0)
        assert producer.flush(60) == 0
        consumer = kafka.Consumer({**servers, "group.id": "readers"})
        consumer.commit(offsets=[kafka.TopicPartition("records", 0, 20)], asynchronous=False)
        consumer.close()
        lags = LagSamples()

        def is_noted() -> bool:
            watch.measure()
            return bool(lags.of("readers"))

        with watching(Settings(servers=broker.bootstrap_servers), lags) as watch:
            eventually(is_noted)
    (now_s, lag) = lags.of("readers")[-1]
    assert (lag, abs(time.time() - now_s) < 60) == (10.0, True)


def test_without_a_broker_nothing_is_noted() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
    lags = LagSamples()
    with watching(Settings(servers=servers), lags) as watch:
        watch.measure()
    assert lags.names() == []


def test_a_group_without_the_right_to_it_costs_no_other_its_points() -> None:
    acls = ["allow alice all topic:*", "allow alice all group:*", "allow bob describe cluster"]
    acls += ["allow bob describe group:seen", "allow bob describe topic:records"]
    with Broker(users={"alice": "of alice", "bob": "of bob"}, acls=acls) as broker:
        alice = broker.client_config("alice")
        producer = kafka.Producer(alice)
        producer.produce("records", "one", partition=0)
        assert producer.flush(60) == 0
        for group in ("hidden", "seen"):
            consumer = kafka.Consumer({**alice, "group.id": group})
            consumer.commit(offsets=[kafka.TopicPartition("records", 0, 0)], asynchronous=False)
            consumer.close()
        lags = LagSamples()
        settings = Settings(servers=broker.bootstrap_servers, properties=broker.client_config("bob"))
        with watching(settings, lags) as watch:
            for _ in range(2):
                watch.measure()
    assert lags.names() == ["seen"]
