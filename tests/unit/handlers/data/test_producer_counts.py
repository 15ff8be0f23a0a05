"""Producers are bounded over all partitions, those of ids that the cluster never granted first; nothing is doubled."""

from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord
from kafkapy.runtime.logs.maintenance import producer_expiry_steps
from kafkapy.storage.producers.producer_counts import CROWDED_EXPIRATION_MS, ProducerCounts
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch
from tests.unit.handlers.data.test_produce import request, send

REFUSED = (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
DAY_MS = 86_400_000


class Producers:
    """A broker with two partitions that keeps three producers whose ids were never granted; ids below 1000 were."""

    def __init__(self, loop: SimLoop) -> None:
        self.hosting = Hosting(loop)
        self.hosting.create_topic(partition_count=2)
        self.account = self.hosting.log_manager.producer_counts
        self.account.max_ungranted = 3
        self.grant(1000)

    def grant(self, next_producer_id: int) -> None:
        self.hosting.commit(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=next_producer_id))

    def send(self, producer_id: int, sequence: int = 0, *, partition: int = 0, client: str = "one") -> tuple[int, int]:
        """Send a batch; return error code and base offset."""
        records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        [response] = send(self.hosting, request(13, (partition, records)), client=client)
        if response.error_code:
            assert response.log_start_offset == -1, "Kafka's clients send again without it, and begin anew with it"
        return response.error_code, response.base_offset

    def clean_up(self, now_ms: int = NOW_MS) -> None:
        for _ in producer_expiry_steps(self.hosting.log_manager, now_ms):
            pass


async def test_made_up_ids_have_room_for_a_few_over_all_partitions(loop: SimLoop) -> None:
    producers = Producers(loop)
    assert [producers.send(5_000 + number, partition=number % 2)[0] for number in range(3)] == [0, 0, 0]
    assert [producers.send(6_000 + number, partition=number % 2) for number in range(20)] == [REFUSED] * 20
    assert sum(len(partition.log.producer_state.producers) for partition in producers.hosting.manager.partitions) == 3


async def test_those_that_are_there_go_on_and_their_duplicates_are_found(loop: SimLoop) -> None:
    producers = Producers(loop)
    assert [producers.send(5_000 + number) for number in range(3)] == [(0, 0), (0, 1), (0, 2)]
    assert producers.send(9_999) == REFUSED
    assert [producers.send(5_000, 1), producers.send(5_000, 1), producers.send(5_002)] == [(0, 3), (0, 3), (0, 2)]


async def test_granted_ids_have_room_whatever_others_made_up(loop: SimLoop) -> None:
    producers = Producers(loop)
    for number in range(4):
        producers.send(5_000 + number)
    assert [producers.send(number)[0] for number in range(50)] == [0] * 50


async def test_an_id_that_was_granted_just_now_is_taken_at_the_next_try(loop: SimLoop) -> None:
    producers = Producers(loop)
    for number in range(3):
        producers.send(5_000 + number)
    assert producers.send(1_500) == REFUSED  # the block is not in this broker's metadata yet
    producers.grant(2_000)
    assert [producers.send(1_500), producers.send(1_500)] == [(0, 3), (0, 3)]


async def test_there_is_room_again_when_they_have_expired(loop: SimLoop) -> None:
    producers = Producers(loop)
    for number in range(3):
        producers.send(5_000 + number)
    producers.clean_up()
    assert producers.send(6_000) == REFUSED
    producers.clean_up(NOW_MS + DAY_MS)
    assert producers.send(6_000)[0] == 0


async def test_those_on_disk_are_counted_after_a_restart(loop: SimLoop) -> None:
    producers = Producers(loop)
    for number in range(3):
        producers.send(5_000 + number)
    producers.hosting.restart()
    producers.account = producers.hosting.log_manager.producer_counts
    producers.account.max_ungranted = 3
    producers.clean_up()
    assert producers.account.ungranted_count == 3
    assert producers.send(6_000) == REFUSED


async def test_granted_ids_and_guesses_of_them_have_room_for_a_number_over_all_partitions(loop: SimLoop) -> None:
    producers = Producers(loop)
    producers.account.max_granted = 4
    assert [producers.send(number, partition=number % 2)[0] for number in range(4)] == [0] * 4
    assert [producers.send(number, partition=number % 2) for number in range(100, 120)] == [REFUSED] * 20
    assert [producers.send(number, 1, partition=number % 2)[0] for number in range(4)] == [0] * 4


async def test_beyond_half_of_that_number_those_of_the_last_ten_minutes_are_kept(loop: SimLoop) -> None:
    producers = Producers(loop)
    producers.account.max_granted = 4
    for number in range(3):
        producers.send(number)
    producers.clean_up(NOW_MS + CROWDED_EXPIRATION_MS - 1)
    assert producers.account.granted_count == 3
    producers.clean_up(NOW_MS + CROWDED_EXPIRATION_MS)
    assert producers.account.granted_count == 0
    producers.send(7)
    producers.clean_up(NOW_MS + CROWDED_EXPIRATION_MS)
    assert producers.account.granted_count == 1, "there is room enough for producer.id.expiration.ms"


@pytest.mark.parametrize("first_id", [0, 5_000], ids=["granted", "made up"])
async def test_beyond_half_of_it_no_client_takes_the_room_of_all_others(loop: SimLoop, first_id: int) -> None:
    producers = Producers(loop)
    producers.account.max_granted = producers.account.max_ungranted = 64
    outcomes = [producers.send(first_id + number, client="attacker")[0] for number in range(64)]
    assert outcomes == [0] * 37 + [REFUSED[0]] * 27, "more than half of it, and then a sixteenth"
    assert producers.send(first_id, 1, client="attacker")[0] == 0, "a producer that is there goes on"
    assert [producers.send(first_id + 100 + number, client="other")[0] for number in range(4)] == [0] * 4
    assert producers.send(first_id + 200, client="other") == REFUSED
    assert producers.send(first_id + 200, client="third")[0] == 0
    producers.clean_up()
    assert producers.send(first_id + 201, client="other")[0] == 0, "a recount gives each client its share again"


async def test_a_batch_that_was_refused_does_not_count_as_a_producer_of_its_client(loop: SimLoop) -> None:
    """A client sends it again each 100 ms while replicas are missing, and is honest."""
    producers = Producers(loop)
    hosting = producers.hosting
    hosting.create_topic("strict", replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
    producers.account.max_granted = 64
    for number in range(33):
        producers.send(number, client="other")
    records = batch(b"a", producer_id=100, producer_epoch=0, base_sequence=0)
    responses = [send(hosting, request(13, (0, records), topic="strict", acks=-1))[0] for _ in range(10)]
    assert {response.error_code for response in responses} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    assert producers.send(100, client="c")[0] == 0


async def test_who_fills_the_room_for_made_up_ids_takes_none_of_granted_ones(loop: SimLoop) -> None:
    producers = Producers(loop)
    producers.account.max_granted, producers.account.max_ungranted = 64, 4
    for number in range(10):
        producers.send(5_000 + number)
    assert producers.account.is_crowded
    assert [producers.send(number)[0] for number in range(30)] == [0] * 30


def test_a_recount_misses_none_that_came_meanwhile() -> None:
    account = ProducerCounts()
    account.learn_next_producer_id(-1)
    account.add(1)
    account.start_recount()
    account.recount([1])
    account.add(2)  # in the partition that was counted already
    account.finish_recount()
    assert account.ungranted_count == 2


def test_before_any_metadata_nothing_counts() -> None:
    account: Any = ProducerCounts(max_ungranted=0)
    account.add(7)
    account.check(7)
    assert account.ungranted_count == 0
