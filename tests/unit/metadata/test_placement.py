"""Replica placement: striped over racks and brokers, never two replicas on one broker, leaders only where it is up."""

from collections import Counter

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.placement import UsableBroker, place_replicas
from tests.support.chance import SeededRandom


def place(brokers: list[UsableBroker], partitions: int, factor: int, seed: int = 1) -> list[list[int]]:
    return place_replicas(brokers, partition_count=partitions, replication_factor=factor, random=SeededRandom(seed))


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(index, rack, index in fenced) for index, rack in enumerate(racks)]


@pytest.mark.parametrize("seed", range(5))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    placed = place(brokers(None, None, None, None), 400, 2, seed)

    assert all(len(set(replicas)) == 2 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {100}
    assert min(Counter(replica for replicas in placed for replica in replicas).values()) >= 150


@pytest.mark.parametrize("seed", range(5))
def test_replicas_lie_in_different_racks(seed: int) -> None:
    cluster = brokers("a", "a", "b", "b", "c")
    rack_of = {broker.id: broker.rack for broker in cluster}

    for replicas in place(cluster, 200, 3, seed):
        assert len({rack_of[replica] for replica in replicas}) == 3


def test_more_replicas_than_racks_fill_up_without_repeating_a_broker() -> None:
    for replicas in place(brokers("a", "a", "b", "b"), 100, 4):
        assert sorted(replicas) == [0, 1, 2, 3]


def test_fenced_brokers_never_come_first() -> None:
    for replicas in place(brokers("a", "b", "c", fenced=(1,)), 100, 3):
        assert replicas[0] != 1
        assert sorted(replicas) == [0, 1, 2]


def test_one_broker_takes_everything() -> None:
    assert place(brokers(None), 3, 1) == [[0], [0], [0]]


@pytest.mark.parametrize(
    ("cluster", "factor", "message"),
    [
        (brokers(None), 0, "the replication factor must be positive"),
        (
            brokers(None),
            2,
            "The target replication factor of 2 cannot be reached because only 1 broker(s)",
        ),
        (brokers(None, fenced=(0,)), 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_too_few_brokers_are_refused(cluster: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        place(cluster, 1, factor)

    assert refusal.value.code == 38
    assert message in str(refusal.value)
