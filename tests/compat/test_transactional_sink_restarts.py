"""The claims of the transactional sink while its broker is killed and started again: no JVM, stock librdkafka."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import STUCK_ATTEMPTS, STUCK_S, SinkError, TransactionalSink
from tests.compat.conftest import new_server
from tests.support.eventually import eventually
from tests.support.wire import WireClient

pytestmark = [pytest.mark.long, pytest.mark.spark]
REBOOTSTRAP = {"metadata.recovery.strategy": "rebootstrap"}
"""librdkafka's default, by which it forgets the group's coordinator while no broker answers."""
ATTEMPTS_S = STUCK_ATTEMPTS * (STUCK_S + 60)


@pytest.mark.parametrize(("client", "longest_s"), [({}, STUCK_S), (REBOOTSTRAP, ATTEMPTS_S)])
def test_a_broker_that_is_killed_between_claims_holds_up_none_of_them(
    tmp_path: Path, client: dict[str, str], longest_s: float
) -> None:
    with new_server(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "bars", 1)
        sink = TransactionalSink("bars", "bars", {"bootstrap.servers": broker.bootstrap, **client})
        with sink.open() as writer:
            for batch_id in range(3):
                started = time.monotonic()
                assert writer.claim("query", batch_id).batch == batch_id
                assert time.monotonic() - started < longest_s
                broker.stop(signal.SIGKILL)
                broker.start()


def test_a_driver_that_begins_anew_gives_way_to_one_that_has_claimed_meanwhile(tmp_path: Path) -> None:
    """The older's note is stuck after the restart; then the newer claims."""
    with new_server(tmp_path / "broker") as broker, ThreadPoolExecutor() as pool:
        create_topic(broker.bootstrap, "bars", 1)
        sink = TransactionalSink("bars", "bars", {"bootstrap.servers": broker.bootstrap, **REBOOTSTRAP})
        with sink.open() as older:
            older.claim("query", 0)
            broker.stop(signal.SIGKILL)
            broker.start()
            stuck = pool.submit(older.claim, "query", 1)
            eventually(lambda: stuck.done() or state(broker.bootstrap, "bars") == "Ongoing")
            with sink.open() as newer:
                newer.claim("query", 1)
            with pytest.raises(SinkError, match="a newer driver uses the transactional id bars"):
                stuck.result(ATTEMPTS_S)


def state(bootstrap: str, transactional_id: str) -> str:
    with WireClient(bootstrap) as client:
        response = client.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    return str(response.transaction_states[0].transaction_state)
