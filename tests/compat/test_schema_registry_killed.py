"""Processes of a cluster that end by kill -9, a registry's or a broker's: nothing is lost, no id is given twice."""

import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import httpx
import pytest

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafkapy.registry.election import HEARTBEAT_S, HEARTBEAT_TIMEOUT_S, SESSION_TIMEOUT_MS
from kafkapy.testing import Broker, Cluster
from tests.support.registries import AVRO

pytestmark = pytest.mark.long

READY: Final = re.compile(r"ready on (http://\S+)")
LOADED_S: Final = 20.0
"""What a machine that does much else may add."""


class RegistryProcess:
    """`kafkapy registry` on a free port."""

    def __init__(self, servers: str, *options: str) -> None:
        command = [sys.executable, "-m", "kafkapy", "registry", "-b", servers, "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        ready = READY.search(self.process.stdout.readline())
        assert ready is not None, "it says where it serves"
        self.url = ready[1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def registries(servers: str, count: int, *options: str) -> Iterator[list[RegistryProcess]]:
    running: list[RegistryProcess] = []
    try:
        while len(running) < count:
            running.append(RegistryProcess(servers, *options))
        yield running
    finally:
        for each in running:
            each.end()


def record(name: str) -> Schema:
    return Schema(AVRO.replace('"T"', f'"{name}"'), "AVRO")


def registered(client: SchemaRegistryClient, names: Iterator[str], count: int) -> dict[str, int]:
    return {name: client.register_schema(name, record(name)) for name in itertools.islice(names, count)}


def leading(running: list[RegistryProcess]) -> RegistryProcess:
    """Return the one that takes a write itself: who does not lead refuses one that was forwarded to it."""
    for each in itertools.cycle(running):
        answer = httpx.put(f"{each.url}/config/probe", json={"compatibility": "FULL"}, headers={"x-forward": "false"})
        if answer.status_code == 200:
            return each
        assert answer.json()["error_code"] in (50003, 50004)
    raise AssertionError("an endless cycle")


def assert_all_there(url: str, ids: dict[str, int]) -> None:
    """Each schema has one id, as it was told to its client, and no other schema has it."""
    assert len(set(ids.values())) == len(ids)
    with SchemaRegistryClient({"url": url}) as client:
        assert set(client.get_subjects()) == set(ids)
        for name, schema_id in ids.items():
            assert client.get_latest_version(name).schema_id == schema_id
            assert client.get_schema(schema_id).schema_str == record(name).schema_str


def test_a_leader_that_is_killed_has_a_successor_before_its_session_would_end_by_confluents_time() -> None:
    names = (f"Subject{number}" for number in itertools.count())
    with Broker() as broker, registries(broker.bootstrap_servers, 3) as running:
        killed = leading(running)
        others = [each for each in running if each is not killed]
        clients = [SchemaRegistryClient({"url": each.url, "max.retries": 0}) for each in others]
        ids = registered(clients[0], names, 5)
        killed.end()
        killed_s = time.monotonic()
        assert clients[1].get_schema(ids["Subject0"]).schema_str, "reads need no leader"
        ids |= registered(clients[0], names, 1)  # without an error: it waits for the next leader
        took_s = time.monotonic() - killed_s
        assert took_s > SESSION_TIMEOUT_MS / 1000 - HEARTBEAT_S - HEARTBEAT_TIMEOUT_S
        assert took_s < SESSION_TIMEOUT_MS / 1000 + 2 * HEARTBEAT_S + LOADED_S
        print(f"the next leader wrote after {took_s:.1f} s")
        ids |= registered(clients[1], names, 5)
        for client in clients:
            client.__exit__(None, None, None)
        for each in others:
            assert_all_there(each.url, ids)
    assert len(ids) == 11


def test_brokers_that_are_killed_one_after_the_other_cost_no_schema(own_kafka_cluster: Cluster) -> None:
    """Each time the one that leads the topic, which in time is the group's coordinator, too."""
    names = (f"Subject{number}" for number in itertools.count())
    cluster = own_kafka_cluster
    with registries(cluster.bootstrap_servers, 2) as running, SchemaRegistryClient({"url": running[1].url}) as client:
        ids = registered(client, names, 3)
        for _ in range(3):
            killed = cluster.leader_of("_schemas", 0)
            cluster.kill(killed)
            killed_s = time.monotonic()
            ids |= registered(client, names, 1)
            print(f"a write after the end of node {killed}: {time.monotonic() - killed_s:.1f} s")
            ids |= registered(client, names, 2)
            cluster.start(killed)
            cluster.wait_in_sync("_schemas")
        for each in running:
            assert_all_there(each.url, ids)
    assert len(ids) == 12


def test_a_leader_that_was_stopped_and_goes_on_writes_no_more() -> None:
    """A process that a machine lets wait, as by SIGSTOP: when it goes on, another one leads."""
    names = (f"Subject{number}" for number in itertools.count())
    with Broker() as broker, registries(broker.bootstrap_servers, 2) as running:
        stopped = leading(running)
        (other,) = (each for each in running if each is not stopped)
        with SchemaRegistryClient({"url": other.url}) as client, SchemaRegistryClient({"url": stopped.url}) as its:
            ids = registered(client, names, 3)
            stopped.process.send_signal(signal.SIGSTOP)
            try:
                while leading([other]) is not other:
                    pass
                ids |= registered(client, names, 3)
            finally:
                stopped.process.send_signal(signal.SIGCONT)
            with suppress(Exception):  # refused, or sent on to the one that leads
                ids |= registered(its, names, 1)
            ids |= registered(client, names, 3)
        for each in running:
            assert_all_there(each.url, ids)
