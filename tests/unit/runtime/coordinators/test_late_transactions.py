"""Transactions that nobody ends: noticed, counted, and logged once with the command that ends them."""

import asyncio
from collections.abc import Callable

import pytest

from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.runtime.coordinators.late_transactions import LateTransactions
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import NOW_MS, topic_id
from tests.support.transaction_hosting import SimProducer, TransactionHosting

MAX_TIMEOUT_MS = 900_000
LATE_AFTER_MS = MAX_TIMEOUT_MS + 300_000


def hosting_with_watch(
    loop: SimLoop, is_expected: Callable[[int, TopicPartition], bool] | None = None
) -> tuple[TransactionHosting, LateTransactions]:
    hosting = TransactionHosting(loop, broker_count=2)
    hosting.create_state_topic()
    hosting.create_topic("orders", replicas=[1, 2], isr=[1])
    late = LateTransactions(
        hosting.manager.partitions,
        lambda: hosting.config.transaction,
        is_expected=is_expected or hosting.transactions.takes_part,
        is_known_here=hosting.transactions.is_only_coordinator,
        clock=hosting.clock,
    )
    return hosting, late


async def sleep_until(hosting: TransactionHosting, wall_ms: int) -> None:
    await asyncio.sleep((wall_ms - hosting.clock.wall_ms()) / 1000)


def test_a_hanging_transaction_is_logged_once_with_the_command_that_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        hosting, late = hosting_with_watch(loop, is_expected=lambda producer_id, partition: False)
        producer = SimProducer(hosting)
        await producer.init()
        await producer.send()
        await sleep_until(hosting, NOW_MS + LATE_AFTER_MS)
        await late.check()
        assert (late.partition_count, caplog.messages) == (0, [])
        await asyncio.sleep(0.001)
        await late.check()
        await late.check()
        assert late.partition_count == 1

    run(main)
    (message,) = caplog.messages
    assert "A transaction hangs in orders-0: producer " in message
    assert "open from offset 0 on, silent for 20 min." in message
    assert message.endswith("kafkapy transactions abort orders 0 --start-offset 0")


def test_a_transaction_that_its_coordinator_will_end_is_only_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        hosting, late = hosting_with_watch(loop)
        producer = SimProducer(hosting)
        await producer.init()
        await producer.send()
        assert hosting.transactions.takes_part(producer.producer_id, TopicPartition("orders", 0))
        assert not hosting.transactions.takes_part(producer.producer_id, TopicPartition("orders", 1))
        await sleep_until(hosting, NOW_MS + LATE_AFTER_MS + 1)
        await late.check()
        assert late.partition_count == 1

    run(main)
    assert not [message for message in caplog.messages if "hangs" in message]


async def hang(hosting: TransactionHosting) -> None:
    producer = SimProducer(hosting)
    await producer.init()
    await producer.send()
    await sleep_until(hosting, NOW_MS + LATE_AFTER_MS + 1)


def test_what_another_broker_may_coordinate_is_not_to_be_aborted_unseen(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        hosting, late = hosting_with_watch(loop)
        await hang(hosting)
        hosting.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id(TRANSACTION_STATE_TOPIC), leader=2, isr=[2], replicas=[1, 2]
            )
        )
        await late.check()

    run(main)
    (message,) = [each for each in caplog.messages if "hangs" in each]
    assert message.endswith("kafkapy transactions find-hanging --topic orders --partition 0")


def test_a_follower_counts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        hosting, late = hosting_with_watch(loop, is_expected=lambda producer_id, partition: False)
        await hang(hosting)
        hosting.commit(
            PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, isr=[2], replicas=[1, 2])
        )
        await late.check()
        assert late.partition_count == 0

    run(main)
    assert not [message for message in caplog.messages if "hangs" in message]
