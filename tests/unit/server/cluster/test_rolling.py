"""In which order nodes are restarted, and what is waited for."""

import pytest

from kafkapy.server.cluster.plan import BROKER, COMBINED, CONTROLLER, NodePlan
from kafkapy.server.cluster.queries import QuorumReplica, QuorumView, TopicPartitions
from kafkapy.server.cluster.rolling import not_in_sync, order


@pytest.mark.parametrize(
    ("roles", "active", "stopped", "expected"),
    [
        ([COMBINED] * 3, 1, [], [2, 3, 1]),
        ([COMBINED] * 3, 2, [3], [3, 1, 2]),
        ([BROKER, CONTROLLER, BROKER, CONTROLLER], 2, [], [1, 3, 4, 2]),
        ([COMBINED], 1, [], [1]),
        ([COMBINED] * 2, None, [], [1, 2]),
    ],
)
def test_the_active_controller_is_last(roles, active, stopped, expected) -> None:
    nodes = [NodePlan(number + 1, role, 0) for number, role in enumerate(roles)]
    assert [node.node_id for node in order(nodes, active, stopped)] == expected


def quorum(**lags: int) -> QuorumView:
    replicas = [QuorumReplica(int(name[1:]), "", lag) for name, lag in lags.items()]
    return QuorumView(1, 5, [1, 2, 3], [], replicas)


@pytest.mark.parametrize(
    ("partitions", "view", "expected"),
    [
        (TopicPartitions(), quorum(n1=0, n2=3), ""),
        (TopicPartitions(under_replicated=["a-0"]), quorum(), "a-0 not in sync"),
        (TopicPartitions(offline=["a-0"], under_replicated=["a-0", "b-1"]), quorum(), "a-0, b-1 not in sync"),
        (TopicPartitions(offline=[f"a-{each}" for each in range(5)]), quorum(), "a-0, a-1, a-2 and 2 more not in sync"),
        (TopicPartitions(), None, "no active controller is known"),
        (TopicPartitions(), quorum(n1=0, n2=-1, n3=5_000), "controller 2, 3 does not follow"),
    ],
)
def test_what_is_not_in_sync_is_named(partitions, view, expected) -> None:
    assert not_in_sync(partitions, view) == expected
