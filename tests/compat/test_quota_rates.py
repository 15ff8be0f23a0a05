"""One load, with the same quotas, on both brokers at a time: throttle times, and so rates, are alike within a tenth.

What a quota makes of each request is compared in tests/golden/test_quotas.py, without a network. Here a client of each
broker sends one request after the other, and waits as long as its connection is muted. The next round begins when both
are answered, so that a busy machine slows down both loads alike. Times are compared, so `make soak` runs it, not CI.
"""

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from harness.servers import ApacheKafka, Kafkapy
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    until,
    values_in,
)
from tests.support.quotas import set_quotas
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif("KAFKAPY_SOAK_SEEDS" not in os.environ, reason="compares times: make soak"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

RATE = 100_000.0
WINDOWS = {"quota.window.num": "3"}
"""Of a second: a burst of two seconds passes."""
VALUE, BATCHES = b"x" * 20_000, 30
"""600 kB, which take four seconds after the burst."""
ATTEMPTS = 3
"""A broker that is held up receives a request later than the other does, and throttles it for shorter."""
PRODUCE_VERSION, FETCH_VERSION = 12, 12


class Load:
    """A client of one broker that produces, or fetches, all batches of a topic; its client-id has the topic's name."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._client, self._topic = WireClient(bootstrap), topic
        self._next = 0
        self.throttles: list[int] = []
        with WireClient(bootstrap) as admin:
            create_topic(admin, topic)
            self.prepare(admin)
            set_quotas(admin, topic, producer_byte_rate=RATE, consumer_byte_rate=RATE)
            set_quotas(admin, f"probe-{topic}", request_percentage=0.0001)  # it is applied after the others
        until(lambda: throttle_of_a_probe(bootstrap, f"probe-{topic}") > 0)

    def prepare(self, admin: WireClient) -> None:
        """Do what has to be done before."""

    @property
    def is_over(self) -> bool:
        return self._next >= BATCHES

    def send(self) -> None:
        self._client.send(produce_request(self._topic, batch_of(value=VALUE)), PRODUCE_VERSION, client_id=self._topic)

    def receive(self) -> None:
        response = self._client.receive()
        self.throttles.append(response.throttle_time_ms)
        self._next += self.count(response)

    def count(self, response: Any) -> int:
        assert response.responses[0].partition_responses[0].error_code == 0
        return 1

    def close(self) -> None:
        self._client.close()


class FetchLoad(Load):
    """A throttled Fetch has no records, and is sent again."""

    def prepare(self, admin: WireClient) -> None:
        for _ in range(BATCHES):
            produce(admin, self._topic, batch_of(value=VALUE))

    def send(self) -> None:
        requested = fetch_request(self._topic, self._next, partition_max_bytes=1)
        self._client.send(requested, FETCH_VERSION, client_id=self._topic)

    def count(self, response: Any) -> int:
        return sum(len(values_in(part)) for topic in response.responses for part in topic.partitions)


class Throttled(NamedTuple):
    """`sum_ms`: without those that follow another one. When that is over, a window of the rate is, too: a millisecond
    decides whether the next Fetch is refused for another second."""

    sum_ms: int
    longest_ms: int


def throttle_of_a_probe(bootstrap: str, client_id: str) -> int:
    with WireClient(bootstrap) as client:
        return int(client.call(ApiVersionsRequest(), 2, client_id=client_id).throttle_time_ms)


def run_together(new_load: Callable[[str, str], Load], bootstraps: list[str], topic: str) -> list[Throttled]:
    loads = [new_load(bootstrap, topic) for bootstrap in bootstraps]
    while going_on := [load for load in loads if not load.is_over]:
        for load in going_on:
            load.send()
        for load in going_on:
            load.receive()
    for load in loads:
        load.close()
    return [Throttled(sum(first_of_each_run(load.throttles)), max(load.throttles)) for load in loads]


def first_of_each_run(throttles: list[int]) -> list[int]:
    return [throttle for before, throttle in pairwise([0, *throttles]) if not before]


@pytest.fixture(scope="module")
def bootstraps(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("both")
    with ApacheKafka(directory / "theirs", WINDOWS) as theirs, Kafkapy(directory / "ours", WINDOWS) as ours:
        yield [ours.bootstrap, theirs.bootstrap]


@pytest.mark.parametrize("new_load", [Load, FetchLoad])
def test_a_client_is_throttled_as_by_apache_kafka(bootstraps: list[str], new_load: type[Load]) -> None:
    found: list[list[Throttled]] = []
    while not found or any(mine != pytest.approx(their, rel=0.1) for mine, their in zip(*found[-1], strict=True)):
        assert len(found) < ATTEMPTS, f"ours and Apache Kafka's: {found}"
        found.append(run_together(new_load, bootstraps, f"{new_load.__name__}-{len(found)}"))
