"""kafkapy.Broker while it lives: topics without a client, restarts, crashes, programs that end without stopping it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from tests.support.client_requests import partition_counts

pytest.importorskip("confluent_kafka")

CLEAN = ".kafka_cleanshutdown"


def produce(broker: Broker, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer(broker.client_config("alice") if broker.ca_pem else broker.client_config())
    producer.produce("orders", value, partition=0)
    assert producer.flush(60) == 0


def values(broker: Broker) -> list[bytes | None]:
    from tests.support.topic_contents import messages

    config = broker.client_config("alice") if broker.ca_pem else broker.client_config()
    return [message.value() for message in messages(config, "orders")]


def test_topics_are_created_and_deleted_without_a_client() -> None:
    with Broker(properties={"num.partitions": 2}) as broker:
        broker.create_topics("orders", "payments", partitions=3, configs={"cleanup.policy": "compact"})
        broker.create_topics("default")
        assert partition_counts(broker.bootstrap_servers) == {"orders": 3, "payments": 3, "default": 2}
        broker.delete_topics("orders", "payments", "unknown")
        assert partition_counts(broker.bootstrap_servers) == {"default": 2}


@pytest.mark.parametrize(
    ("names", "options", "code"),
    [
        (["taken"], {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        (["a b"], {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (["new"], {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        (["new"], {"configs": {"no.such.key": 1}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_created_is_reported(names, options, code, shared: Broker) -> None:
    with pytest.raises(ApiError) as caught:
        shared.create_topics(*names, **options)
    assert caught.value.code == code


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topics("taken")
        yield broker


@pytest.mark.parametrize("secure", [False, True])
def test_a_restart_keeps_data_port_and_logins(tmp_path: Path, secure: bool) -> None:
    options = {"tls": True, "users": {"alice": "secret"}} if secure else {}
    with Broker(tmp_path / "data", **options) as broker:
        before = broker.bootstrap_servers, broker.cluster_id, broker.ca_pem
        broker.create_topics("orders")
        produce(broker, b"1")
        broker.restart()
        assert (broker.bootstrap_servers, broker.cluster_id, broker.ca_pem) == before
        produce(broker, b"2")
        assert values(broker) == [b"1", b"2"]


def test_a_kill_is_a_crash_that_a_restart_recovers_from(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.create_topics("orders")
        produce(broker, b"1")
        broker.kill()
        assert not (tmp_path / "data" / CLEAN).exists()
        with pytest.raises(RuntimeError, match="was killed: restart it first"):
            _ = broker.bootstrap_servers
        broker.restart()
        produce(broker, b"2")
        assert values(broker) == [b"1", b"2"]
    assert (tmp_path / "data" / CLEAN).exists()


def test_a_killed_broker_can_be_left_as_it_is(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.kill()
    assert not (tmp_path / "data" / CLEAN).exists()
    with Broker(tmp_path / "data") as again:
        assert again.node_id == 1


async def test_all_of_it_can_be_awaited() -> None:
    async with Broker() as broker:
        await broker.create_topics_async("orders")
        with pytest.raises(RuntimeError, match="await the method whose name ends in _async"):
            broker.create_topics("more")
        address = broker.bootstrap_servers
        await broker.restart_async()
        await broker.kill_async()
        await broker.restart_async()
        assert broker.bootstrap_servers == address
        await broker.delete_topics_async("orders")
        assert asyncio.all_tasks() != {asyncio.current_task()}
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_broker_that_does_not_run_is_reported() -> None:
    for call in (Broker().restart, Broker().kill, Broker().create_topics):
        with pytest.raises(RuntimeError, match="not running: use it as"):
            call()


NEVER_STOPPED = """
import os
from kafkapy import Broker
broker = Broker({directory}).__enter__()
broker.create_topics("orders")
print(os.listdir(os.environ["TMPDIR"]))
"""
NEVER_STOPPED_ASYNC = """
import asyncio, os
from kafkapy import Broker
async def main():
    broker = await Broker().start()
    await broker.create_topics_async("orders")
    print(os.listdir(os.environ["TMPDIR"]))
asyncio.run(main())
"""


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "import sys; sys.exit()"])
def test_a_broker_that_is_never_stopped_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    assert run(tmp_path, NEVER_STOPPED.format(directory="") + ending).startswith("['kafkapy-")
    assert [*tmp_path.iterdir()] == []


def test_nor_does_one_on_a_loop_that_has_ended(tmp_path: Path) -> None:
    assert run(tmp_path, NEVER_STOPPED_ASYNC).startswith("['kafkapy-")
    assert [*tmp_path.iterdir()] == []


def test_nor_does_one_whose_workers_still_write(tmp_path: Path) -> None:
    writing = """
    directory = os.environ["TMPDIR"] + "/" + os.listdir(os.environ["TMPDIR"])[0]
    def write():
        for number in range(3000):
            open(f"{directory}/{number}", "w").close()
    broker._server.node.io_pool.submit(write, print)
asyncio.run"""
    assert run(tmp_path, writing.join(NEVER_STOPPED_ASYNC.rsplit("\nasyncio.run", 1))).startswith("['kafkapy-")
    assert [*tmp_path.iterdir()] == []


def test_one_with_a_directory_is_stopped_in_order(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    run(temporary, NEVER_STOPPED.format(directory=repr(str(tmp_path / "data"))))
    assert (tmp_path / "data" / CLEAN).exists()


def run(temporary: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"TMPDIR": str(temporary), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr  # a machine that is slow may be told of in the log
    return done.stdout


def test_an_unknown_key_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"no\.such\.key"):
        Broker(properties={"no.such.key": 1})
