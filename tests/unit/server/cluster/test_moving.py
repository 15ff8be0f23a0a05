"""Which replicas `kafkapy cluster move` asks for, with and without another replication factor."""

import pytest

from kafkapy.server.cluster.moving import resized, targets
from kafkapy.server.cluster.plan import ClusterError


@pytest.mark.parametrize(
    ("replicas", "brokers", "expected"),
    [
        ({0: [1], 1: [1], 2: [1]}, [2, 3], {0: [2], 1: [3], 2: [2]}),
        ({0: [1, 2], 1: [2, 1]}, [3, 4, 5], {0: [3, 4], 1: [4, 5]}),
        ({0: [1]}, [1], {0: [1]}),
    ],
)
def test_partitions_keep_their_replica_count_and_take_turns(
    replicas: dict[int, list[int]], brokers: list[int], expected: dict[int, list[int]]
) -> None:
    assert targets(replicas, brokers) == expected


def test_moved_partitions_get_another_replication_factor() -> None:
    assert targets({0: [1], 1: [1, 2]}, [2, 3, 4], factor=2) == {0: [2, 3], 1: [3, 4]}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ClusterError, match="partition 0 is to have 2 replicas"):
        targets({0: [1, 2]}, [3])
    with pytest.raises(ClusterError, match="3 replicas are wanted: only 2 brokers are running"):
        resized({0: [1, 2]}, 3, {1: None, 2: None}, {})


def test_a_broker_named_twice_is_refused() -> None:
    with pytest.raises(ClusterError, match="a broker is named twice"):
        targets({0: [1]}, [3, 3])


def test_dropped_replicas_are_the_last_ones() -> None:
    assert resized({0: [3, 1, 2], 1: [1, 2]}, 2, {1: None, 2: None, 3: None}, {}) == {0: [3, 1], 1: [1, 2]}


def test_added_replicas_go_to_the_brokers_with_the_fewest() -> None:
    racks = {1: None, 2: None, 3: None, 4: None}
    assert resized({0: [1], 1: [1], 2: [4]}, 2, racks, {1: 2, 2: 9, 3: 8, 4: 1}) == {0: [1, 4], 1: [1, 4], 2: [4, 1]}


def test_added_replicas_go_to_racks_that_have_none() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    assert resized({0: [1], 1: [3]}, 2, racks, {1: 0, 2: 0, 3: 50}) == {0: [1, 3], 1: [3, 1]}


def test_a_partition_on_a_broker_that_does_not_run_keeps_its_place() -> None:
    assert resized({0: [9]}, 2, {1: None, 2: None}, {9: 1}) == {0: [9, 1]}
