"""What a cluster's brokers say of it, if they are gone or do not answer."""

import pytest

from kafkapy.embedded.observer import ClusterObserver
from kafkapy.server.cluster.plan import BROKER, ClusterPlan, NodePlan, free_ports
from kafkapy.testing import ClusterError


def observer(*, runs: bool) -> ClusterObserver:
    """Of a cluster of one broker, at a port where nothing listens. `runs`: whether its process is there."""
    plan = ClusterPlan("cluster", [NodePlan(1, BROKER, port=free_ports(1)[0])])
    return ClusterObserver(plan, lambda _: runs)


@pytest.mark.parametrize("runs", [False, True])
def test_nothing_is_in_sync_if_no_broker_says_so(runs: bool) -> None:
    with pytest.raises(ClusterError, match=r"not in sync: no broker answers after"):
        observer(runs=runs).wait_in_sync([], 0.1)


@pytest.mark.parametrize("runs", [False, True])
def test_topics_have_no_leaders_if_no_broker_says_so(runs: bool) -> None:
    with pytest.raises(ClusterError, match=r"no broker answers after"):
        observer(runs=runs).wait_for_leaders(["orders"], 0.1)
