"""kafkapy.Broker: what it says where it is not used as it is meant to be, and where it cannot go on."""

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.errors import StorageError
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.support.client_requests import create_topic, until
from tests.support.wire import WireClient


def lose_directory(broker: Broker, path: Path) -> None:
    """Take a broker's data away, and have it notice: there is no place for another topic."""
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "orders")
        shutil.rmtree(path)
        client.call(
            CreateTopicsRequest(
                topics=[CreatableTopic("later", num_partitions=1, replication_factor=1)], timeout_ms=30_000
            ),
            7,
        )


def use_until_it_stops_serving(data_dir: Path) -> None:
    with Broker(data_dir) as broker:
        address = broker.bootstrap_servers
        lose_directory(broker, data_dir)
        until(lambda: raises(lambda: broker.bootstrap_servers))
        until(lambda: not accepts(address))


def raises(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError:
        return True
    return False


def test_a_broker_that_cannot_go_on_stops_serving_and_logs_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = tmp_path / "data"
    with pytest.raises(RuntimeError, match=r"could not go on: log directory .*data") as caught:
        use_until_it_stops_serving(data_dir)
    assert isinstance(caught.value.__cause__, StorageError)
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)
    with Broker(data_dir) as again, WireClient(again.bootstrap_servers) as client:
        create_topic(client, "orders")


def accepts(address: str) -> bool:
    try:
        WireClient(address).close()
    except OSError:
        return False
    return True


def test_misuse_is_reported() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match=r"not running: use it as"):
        _ = broker.node_id
    with broker:
        assert broker.node_id == 1
        with pytest.raises(RuntimeError, match="runs already"):
            broker.__enter__()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.cluster_id


async def test_nothing_is_left_running_on_the_callers_loop() -> None:
    async with Broker():
        pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
