"""Who may write: a leader whose membership the group's coordinator has confirmed lately."""

import time
from typing import Any, NoReturn

import pytest

from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.registry import election as module
from kafkapy.registry.cluster import Cluster, ClusterError
from kafkapy.registry.election import LEASE_S, Election, Identity

OWN = Identity("http", "127.0.0.1", 8081)


@pytest.fixture
def leader() -> Election:
    election = Election(Cluster("127.0.0.1:1"), OWN)
    election._set_leader(OWN)
    return election


def test_a_leader_whose_request_to_join_gets_no_response_writes_no_longer_than_its_lease(leader, monkeypatch) -> None:
    seen: list[bool] = []

    def without_response(*_: Any) -> NoReturn:
        leader._confirmed_s = time.monotonic()
        seen.append(leader.may_write)
        leader._confirmed_s -= LEASE_S
        seen.append(leader.may_write)
        raise ClusterError("no response")

    monkeypatch.setattr(module, "call", without_response)
    with pytest.raises(ClusterError):
        leader._remain_member(None)
    assert seen == [True, False]


def test_a_heartbeat_in_a_rebalance_prolongs_the_lease(leader, monkeypatch) -> None:
    joins = iter((True, False))

    def join(_: Any) -> bool:
        if next(joins):
            return True
        leader._is_stopping.set()
        raise ClusterError("the end of the test")

    monkeypatch.setattr(module, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(module, "call", lambda *_: HeartbeatResponse(error_code=27))  # REBALANCE_IN_PROGRESS
    monkeypatch.setattr(leader, "_join", join)
    with pytest.raises(ClusterError):
        leader._remain_member(None)
    assert leader.may_write


def test_an_error_of_a_later_kafka_ends_a_try_and_not_the_election(leader, monkeypatch) -> None:
    monkeypatch.setattr(module, "call", lambda *_: JoinGroupResponse(error_code=9_999))
    with pytest.raises(ClusterError, match="UNKNOWN_SERVER_ERROR"):
        leader._join(None)
