"""One load, with the same quotas, on both brokers: rates and throttle times are alike within a tenth.

What a quota makes of each request is compared in tests/golden/test_quotas.py, without a network. Here it is a client
whose requests follow each other and who waits as long as its connection is muted.
"""

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

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
    pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

RATE = 100_000.0
WINDOWS = {"quota.window.num": "3"}
"""Of a second: a burst of two seconds passes."""
VALUE, BATCHES = b"x" * 20_000, 30
"""600 kB, which take four seconds after the burst."""
ATTEMPTS = 3
"""A machine that is busy makes a client slower than its quota, and throttles shorter."""
PRODUCE_VERSION, FETCH_VERSION = 12, 12


class Outcome(NamedTuple):
    bytes_per_s: float
    throttle_ms: int
    longest_ms: int

    def is_like(self, other: "Outcome") -> bool:
        return all(mine == pytest.approx(their, rel=0.1) for mine, their in zip(self, other, strict=True))


Load = Callable[[WireClient, str], list[int]]
"""Moves the bytes as a client-id; returns the throttle times."""


def produced(client: WireClient, name: str) -> list[int]:
    request = produce_request(name, batch_of(value=VALUE))
    return [client.call(request, PRODUCE_VERSION, client_id=name).throttle_time_ms for _ in range(BATCHES)]


def fetched(client: WireClient, name: str) -> list[int]:
    """A throttled Fetch has no records, and is sent again."""
    throttles: list[int] = []
    offset = 0
    while offset < BATCHES:
        requested = fetch_request(name, offset, partition_max_bytes=1)
        response = client.call(requested, FETCH_VERSION, client_id=name)
        throttles.append(response.throttle_time_ms)
        offset += sum(len(values_in(answer)) for topic in response.responses for answer in topic.partitions)
    return throttles


def outcome(bootstrap: str, name: str, load: Load) -> Outcome:
    with WireClient(bootstrap) as admin, WireClient(bootstrap) as client:
        create_topic(admin, name)
        if load is fetched:
            for _ in range(BATCHES):
                produce(admin, name, batch_of(value=VALUE))
        set_quotas(admin, name, producer_byte_rate=RATE, consumer_byte_rate=RATE)
        set_quotas(admin, f"probe-{name}", request_percentage=0.0001)
        until(lambda: throttle_of_a_probe(bootstrap, f"probe-{name}") > 0)
        began_s = time.monotonic()
        throttles = load(client, name)
        client.call(ApiVersionsRequest(), 0)
        elapsed_s = time.monotonic() - began_s
    return Outcome(len(VALUE) * BATCHES / elapsed_s, sum(throttles), max(throttles))


def throttle_of_a_probe(bootstrap: str, client_id: str) -> int:
    with WireClient(bootstrap) as client:
        return int(client.call(ApiVersionsRequest(), 2, client_id=client_id).throttle_time_ms)


def test_a_client_is_throttled_as_by_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "theirs", WINDOWS) as theirs, Kafkapy(tmp_path / "ours", WINDOWS) as ours:
        for load in (produced, fetched):
            names = (f"{load.__name__}-{number}" for number in count())
            outcomes: list[tuple[Outcome, Outcome]] = []
            while not (outcomes and outcomes[-1][0].is_like(outcomes[-1][1])):
                assert len(outcomes) < ATTEMPTS, f"{load.__name__}: {outcomes}"
                name = next(names)
                outcomes.append((outcome(ours.bootstrap, name, load), outcome(theirs.bootstrap, name, load)))
