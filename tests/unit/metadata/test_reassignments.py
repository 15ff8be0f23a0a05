"""Partition reassignments as the controller decides them (KIP-455, KIP-860): the cases of Apache Kafka's tests."""

import pytest

from kafkapy.metadata.partition_indexes import PARTITIONS_PER_STEP as PARTITIONS_INDEXED_PER_STEP
from kafkapy.metadata.reassignments import PARTITIONS_PER_STEP
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from tests.support.controllers import end_of
from tests.support.placed_topics import NO_ELR, alter_isr, brokers, fence, ongoing, partition, place, reassign

DONE = (0, None)
NOT_RUNNING = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
UNCLEAN = {"unclean_leader_election_enable": "true"}


def test_reordering_is_done_at_once_and_moving_begins() -> None:
    cluster = brokers(0, 1, 2, 3)
    place(cluster, "foo", [1, 2, 3], [3, 2, 1])
    place(cluster, "bar", [1, 2, 3])

    responses = reassign(cluster, {"foo": {0: [3, 2, 1], 1: [0, 2, 1], 2: [0, 2, 1]}, "bar": {}, "baz": {0: None}})

    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition foo:2.")
    no_topic = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named baz.")
    assert responses == {("foo", 0): DONE, ("foo", 1): DONE, ("foo", 2): missing, ("baz", 0): no_topic}
    assert partition(cluster, "foo", 0).replicas == (3, 2, 1)
    assert partition(cluster, "foo", 0).leader_epoch == 0
    running = {("foo", 1): ([0, 2, 1, 3], [0], [3])}
    assert ongoing(cluster) == ongoing(cluster, {"foo": [0, 1, 2]}) == running
    assert ongoing(cluster, {"bar": [0, 1, 2], "baz": [0]}) == {}


def test_many_reassignments_are_listed_in_steps() -> None:
    cluster = brokers(0, 1)
    place(cluster, "foo", *([0] for _ in range(PARTITIONS_PER_STEP + 1)))
    reassign(cluster, {"foo": {number: [1] for number in range(PARTITIONS_PER_STEP + 1)}})
    steps = cluster.controller.reassignments.decide_list(ListPartitionReassignmentsRequest(topics=None))
    assert list(steps) == [[], []]
    assert len(ongoing(cluster)) == PARTITIONS_PER_STEP + 1


def test_a_new_controller_looks_for_all_reassignments_in_steps() -> None:
    cluster = brokers(0, 1)
    for name in ("foo", "bar"):
        place(cluster, name, *([0] for _ in range(PARTITIONS_INDEXED_PER_STEP)))
    steps = cluster.controller.reassignments.decide_list(ListPartitionReassignmentsRequest(topics=None))
    assert list(steps) == [[], []]
    assert list(cluster.controller.reassignments.decide_list(ListPartitionReassignmentsRequest(topics=None))) == []


def test_reassignment_ends_when_the_last_added_replica_joins_the_isr() -> None:
    cluster = brokers(0, 1, 2, 3)
    place(cluster, "foo", [3, 2, 1])
    reassign(cluster, {"foo": {0: [0, 2, 1]}})

    response = alter_isr(cluster, "foo", [3, 0, 2, 1])

    assert response.error_code == ErrorCode.NEW_LEADER_ELECTED
    moved = partition(cluster, "foo")
    assert (moved.replicas, moved.isr, moved.leader, moved.leader_epoch) == ((0, 2, 1), (0, 2, 1), 0, 1)
    assert ongoing(cluster) == {}


def test_leader_that_stays_learns_of_the_end_by_its_isr() -> None:
    cluster = brokers(0, 1, 2)
    place(cluster, "foo", [0, 1])
    reassign(cluster, {"foo": {0: [0, 2]}})

    response = alter_isr(cluster, "foo", [0, 1, 2])

    assert (response.error_code, response.isr, response.leader_epoch) == (0, [0, 2], 1)
    assert partition(cluster, "foo").replicas == (0, 2)


def test_cancelled_reassignment_leaves_the_replicas_from_before() -> None:
    cluster = brokers(0, 1, 2, 3)
    place(cluster, "foo", [1, 2, 3], [3, 2, 1])
    place(cluster, "bar", [1, 2, 3])
    reassign(cluster, {"foo": {1: [0, 2, 1]}})

    responses = reassign(cluster, {"foo": {0: None, 1: None, 2: None}, "bar": {0: None}})

    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition foo:2.")
    assert responses == {("foo", 0): NOT_RUNNING, ("foo", 1): DONE, ("foo", 2): missing, ("bar", 0): NOT_RUNNING}
    back = partition(cluster, "foo", 1)
    assert (back.replicas, back.adding_replicas, back.removing_replicas) == ((2, 1, 3), (), ())
    assert (back.leader, back.leader_epoch) == (3, 1)
    assert ongoing(cluster) == {}


def test_replicas_are_removed_and_added_with_a_fenced_broker_among_them() -> None:
    cluster = brokers(0, 1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", [1, 2, 3, 4], [0, 1, 2, 3], [4, 3, 1, 0], [2, 3, 4, 1])
    place(cluster, "bar", [4, 3, 2])
    fence(cluster, 3)

    responses = reassign(
        cluster, {"foo": {0: [1, 2, 4], 1: [1, 2, 3, 0], 2: [5, 6, 7], 3: []}, "bar": {0: [1, 2, 3, 4, 0]}}
    )

    refusal = "The manual partition assignment includes"
    assert responses[("foo", 2)] == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{refusal} broker 5, but no such broker is registered.",
    )
    assert responses[("foo", 3)] == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{refusal} an empty replica list.")
    shrunk, reordered = partition(cluster, "foo", 0), partition(cluster, "foo", 1)
    assert (shrunk.replicas, shrunk.isr, shrunk.leader_epoch) == ((1, 2, 4), (1, 2, 4), 1)
    assert (reordered.replicas, reordered.leader, reordered.leader_epoch) == ((1, 2, 3, 0), 0, 0)
    assert ongoing(cluster) == {("bar", 0): ([1, 2, 3, 4, 0], [0, 1], [])}


def test_replica_in_the_isr_is_taken_back_by_cancelling() -> None:
    cluster = brokers(0, 1, 2, 3, 4, features=NO_ELR)
    place(cluster, "bar", [4, 3, 2])
    fence(cluster, 3)
    reassign(cluster, {"bar": {0: [1, 2, 3, 4, 0]}})
    assert alter_isr(cluster, "bar", [4, 2, 1]).error_code == 0

    assert reassign(cluster, {"bar": {0: None}}) == {("bar", 0): DONE}

    back = partition(cluster, "bar")
    assert (back.replicas, back.isr, back.leader, back.leader_epoch) == ((2, 3, 4), (4, 2), 4, 1)


def test_the_only_replica_moves() -> None:
    cluster = brokers(0, 1, features=NO_ELR)
    place(cluster, "foo", [0])
    reassign(cluster, {"foo": {0: [1]}})
    alter_isr(cluster, "foo", [0, 1])

    moved = partition(cluster, "foo")

    assert (moved.replicas, moved.isr, moved.leader) == ((1,), (1,), 1)


@pytest.mark.parametrize(("configs", "code"), [({}, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (UNCLEAN, ErrorCode.NONE)])
def test_cancelling_that_loses_records_needs_unclean_elections(configs: dict[str, str], code: int) -> None:
    """Only replicas that were being added are in sync: the ones from before miss what was acknowledged since."""
    cluster = brokers(0, 1, 2, 3, features=NO_ELR)
    place(cluster, "foo", [0, 1], **configs)
    reassign(cluster, {"foo": {0: [2, 3]}})
    alter_isr(cluster, "foo", [0, 1, 2])
    for broker_id in (1, 0):
        fence(cluster, broker_id)
    assert partition(cluster, "foo").isr == (2,)

    responses = reassign(cluster, {"foo": {0: None}})

    assert responses[("foo", 0)][0] == code
    if code:
        assert responses[("foo", 0)][1] == (
            "Unable to revert partition assignment for foo:0 because it would require an unclean leader election."
        )
        return
    back = partition(cluster, "foo")
    assert (back.replicas, back.isr, back.leader) == ((0, 1), (0,), NO_LEADER)


def test_new_target_removes_what_the_one_before_was_adding() -> None:
    cluster = brokers(0, 1, 2, 3, 4, 5)
    place(cluster, "foo", [0, 1])
    reassign(cluster, {"foo": {0: [2, 3]}})
    assert ongoing(cluster) == {("foo", 0): ([2, 3, 0, 1], [2, 3], [0, 1])}
    alter_isr(cluster, "foo", [0, 1, 2])

    assert reassign(cluster, {"foo": {0: [4, 5]}}) == {("foo", 0): DONE}

    assert ongoing(cluster) == {("foo", 0): ([4, 5, 0, 1, 2, 3], [4, 5], [0, 1, 2, 3])}
    alter_isr(cluster, "foo", [0, 1, 2, 4, 5])
    assert (partition(cluster, "foo").replicas, ongoing(cluster)) == ((4, 5), {})


def test_a_reassignment_ends_when_the_replicas_before_it_are_requested_again() -> None:
    cluster = brokers(0, 1, 2, 3)
    place(cluster, "foo", [3, 1])
    reassign(cluster, {"foo": {0: [3, 2]}})
    assert ongoing(cluster) == {("foo", 0): ([3, 2, 1], [2], [1])}

    reassign(cluster, {"foo": {0: [3, 1]}})

    assert partition(cluster, "foo").replicas == (3, 1)
    assert ongoing(cluster) == {}


def test_a_replica_that_was_moved_away_is_not_eligible_to_lead() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2], min_insync_replicas="2")
    fence(cluster, 2)
    assert (partition(cluster, "foo").isr, partition(cluster, "foo").elr) == ((1,), (2,))
    reassign(cluster, {"foo": {0: [3, 2]}})

    alter_isr(cluster, "foo", [1, 3])

    moved = partition(cluster, "foo")
    assert (moved.replicas, moved.leader, moved.isr, moved.elr) == ((3, 2), 3, (3,), (2,))


def test_fewer_replicas_wait_for_all_that_stay() -> None:
    """Else the ISR would shrink to what happens to be in sync."""
    cluster = brokers(0, 1, 2, 3, 4, 5, features=NO_ELR)
    place(cluster, "foo", [0, 1, 2, 3, 4])
    for broker_id in (2, 3, 4):
        fence(cluster, broker_id)
    reassign(cluster, {"foo": {0: [2, 3, 4, 5]}})

    alter_isr(cluster, "foo", [0, 1, 5])

    assert ongoing(cluster) == {("foo", 0): ([2, 3, 4, 5, 0, 1], [5], [0, 1])}


@pytest.mark.parametrize(
    ("target", "factors"), [([0, 1], None), ([3, 2], None), ([0], (2, 1)), ([0, 1, 2], (2, 3)), ([3], (2, 1))]
)
def test_factor_may_be_held_fixed(target: list[int], factors: tuple[int, int] | None) -> None:
    cluster = brokers(0, 1, 2, 3)
    place(cluster, "foo", [0, 1])
    reassign(cluster, {"foo": {0: [2, 1]}})  # a running reassignment counts with its target

    (response,) = reassign(cluster, {"foo": {0: target}}, may_change_factor=False).values()

    if factors is None:
        assert response == DONE
    else:
        message = f"The replication factor is changed from {factors[0]} to {factors[1]}"
        assert response == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def test_second_mention_of_a_partition_is_refused() -> None:
    """Two changes of one partition, each decided from its present state, can contradict each other."""
    cluster = brokers()
    for broker_id in (0, 1, 2):
        cluster.start_broker(broker_id, log_dirs=[bytes([9, each, broker_id]).rjust(16) for each in (1, 2)])
    place(cluster, "foo", [1, 2])  # each replica's directory is still to be chosen
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                "foo",
                partitions=[
                    ReassignablePartition(0, replicas=[0, 2]),
                    ReassignablePartition(0, replicas=[2, 1]),
                ],
            )
        ]
    )

    response = cluster.commit(cluster.controller.reassignments.decide_alter(request))

    assert [each.error_code for each in response.responses[0].partitions] == [0, ErrorCode.INVALID_REQUEST]
    assert ongoing(cluster) == {("foo", 0): ([0, 2, 1], [0], [1])}


def test_same_replica_twice_is_refused() -> None:
    cluster = brokers(0, 1)
    place(cluster, "foo", [0])

    (response,) = reassign(cluster, {"foo": {0: [1, 1]}}).values()

    assert response[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_target_that_is_so_already_changes_nothing() -> None:
    cluster = brokers(0, 1)
    place(cluster, "foo", [0, 1])
    before = partition(cluster, "foo")

    assert reassign(cluster, {"foo": {0: [0, 1]}}) == {("foo", 0): DONE}

    assert partition(cluster, "foo") == before


def test_reassignments_are_found_after_another_controller_took_over() -> None:
    cluster = brokers(0, 1, 2)
    place(cluster, "foo", [0, 1], [1, 2])
    reassign(cluster, {"foo": {1: [0]}})
    running = ongoing(cluster)

    cluster.controller.load(cluster.image, next_offset=cluster.controller.next_offset, now_ms=0)

    assert running == ongoing(cluster) == {("foo", 1): ([0, 1, 2], [0], [1, 2])}


def test_one_operation_has_its_bound() -> None:
    cluster = brokers(0, 1)
    place(cluster, "foo", [0], [0])
    requested: dict[int, list[int]] = {partition_id: [1] for partition_id in range(10_001)}
    for partition_id in range(2, 10_001):
        cluster.controller.topics.by_name["foo"].set_partition(partition_id, partition(cluster, "foo"))

    decision = end_of(cluster.controller.reassignments.decide_alter(_request("foo", requested)))

    codes = [response.error_code for response in decision.response.responses[0].partitions]
    assert len(decision.records) == 10_000
    assert codes == [0] * 10_000 + [ErrorCode.POLICY_VIOLATION]


def _request(name: str, targets: dict[int, list[int]]) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_id, replicas=replicas) for partition_id, replicas in targets.items()]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, partitions=partitions)])
