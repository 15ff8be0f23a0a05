"""Which replicas `kafkapy cluster move` asks for."""

import pytest

from kafkapy.server.cluster.moving import targets
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


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ClusterError, match="partition 0 has 2 replicas"):
        targets({0: [1, 2]}, [3])
