"""Elections by request and for balance: the cases of Apache Kafka's ReplicationControlManagerTest."""

import pytest

from kafkapy.machine import Decision
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.metadata.requested_elections import PREFERRED, UNCLEAN
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.config_record import ConfigRecord
from tests.support.controllers import Cluster, end_of
from tests.support.placed_topics import NO_ELR, alter_isr, brokers, elect, fence, partition, place, reassign

DONE = (0, None)
NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
NOT_PREFERRED = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
NOBODY = (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
FOO = ([1, 2, 3], [2, 3, 4], [0, 2, 1])


def leaders(cluster: Cluster, count: int) -> list[int]:
    return [partition(cluster, "foo", partition_id).leader for partition_id in range(count)]


@pytest.mark.parametrize("is_for_all", [False, True])
def test_unclean_election_needs_a_replica_that_is_up(is_for_all: bool) -> None:
    cluster = brokers(0, 1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", *FOO)
    for broker_id in (2, 3, 1):
        fence(cluster, broker_id)
    assert leaders(cluster, 3) == [NO_LEADER, 4, 0]
    requested = None if is_for_all else {"foo": [0, 1, 2]}

    before = elect(cluster, UNCLEAN, requested)
    cluster.heartbeat(2)
    alter_isr(cluster, "foo", [2, 4], 1)
    after = elect(cluster, UNCLEAN, requested)

    others = {} if is_for_all else {("foo", 2): NOT_NEEDED}
    assert before == {("foo", 0): NOBODY, ("foo", 1): NOT_NEEDED, **others}
    assert after == {("foo", 0): DONE, ("foo", 1): NOT_NEEDED, **others}
    elected = partition(cluster, "foo")
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (2, (2,), 1)
    assert leaders(cluster, 3) == [2, 4, 0]


def test_preferred_election_is_never_unclean() -> None:
    cluster = brokers(1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", [1, 2, 3])
    for broker_id in (2, 3, 1):
        fence(cluster, broker_id)
    cluster.heartbeat(2)
    assert (partition(cluster, "foo").leader, partition(cluster, "foo").isr) == (NO_LEADER, (1,))
    allow = ConfigRecord(resource_type=2, resource_name="foo", name="unclean.leader.election.enable", value="true")
    cluster.commit(Decision(None, [allow]))

    responses = elect(cluster, PREFERRED, {"foo": [0]})

    assert responses == {("foo", 0): NOT_PREFERRED}


def test_preferred_leaders_lead_once_they_are_in_sync() -> None:
    cluster = brokers(0, 1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", *FOO)
    for broker_id in (0, 1):
        fence(cluster, broker_id)
    no_topic = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as bar")
    no_partition = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as foo-3")
    requested = {"foo": [0, 1, 2, 3], "bar": [0]}

    before = elect(cluster, PREFERRED, requested)
    for broker_id in (0, 1):
        cluster.heartbeat(broker_id)
    alter_isr(cluster, "foo", [1, 2, 3], 0)
    alter_isr(cluster, "foo", [0, 2, 1], 2)
    after = elect(cluster, PREFERRED, requested)

    missing = {("foo", 3): no_partition, ("bar", 0): no_topic}
    assert before == {("foo", 0): NOT_PREFERRED, ("foo", 1): NOT_NEEDED, ("foo", 2): NOT_PREFERRED, **missing}
    assert after == {("foo", 0): DONE, ("foo", 1): NOT_NEEDED, ("foo", 2): DONE, **missing}
    assert leaders(cluster, 3) == [1, 2, 0]
    assert partition(cluster, "foo").leader_epoch == 2


def test_the_message_about_a_very_long_name_is_whole_once() -> None:
    """A request may have 90,000 partitions of a topic that is not there."""
    name, cluster = "x" * 30_000, brokers(0)
    asked = elect(cluster, PREFERRED, {name: [0, 1, 2]}), reassign(cluster, {name: {0: [0], 1: [0], 2: [0]}})
    for responses in asked:
        assert [code for code, _ in responses.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
        assert [len(message) > 30_000 for _, message in responses.values()] == [True, False, False]
        assert all(len(message) < 400 for _, message in [*responses.values()][1:])


def test_balance_changes_what_can_change_and_nothing_else() -> None:
    cluster = brokers(0, 1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", *FOO)
    for broker_id in (0, 1):
        fence(cluster, broker_id)
    cluster.heartbeat(1)
    alter_isr(cluster, "foo", [1, 2, 3], 0)
    candidates = end_of(cluster.controller.elections.decide_candidates()).response
    assert candidates == [("foo", 0), ("foo", 2)]

    assert cluster.commit(cluster.controller.elections.decide_balance(candidates)) == 1

    assert leaders(cluster, 3) == [1, 2, 2]
    assert end_of(cluster.controller.elections.decide_candidates()).response == [("foo", 2)]
    assert cluster.commit(cluster.controller.elections.decide_balance([("gone", 0), ("foo", 9)])) == 0


def test_candidates_forget_deleted_topics() -> None:
    cluster = brokers(1, 2)
    topic_id = place(cluster, "foo", [1, 2])
    fence(cluster, 1)
    assert end_of(cluster.controller.elections.decide_candidates()).response == [("foo", 0)]

    cluster.commit(cluster.controller.topics.decide_delete([topic_id]))

    assert end_of(cluster.controller.elections.decide_candidates()).response == []
