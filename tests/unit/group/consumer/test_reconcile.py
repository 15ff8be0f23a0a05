"""Every step of a member towards its target, as a table: state before, target, report; state after."""

from collections.abc import Mapping

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.reconcile import Target, reconcile
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid

FOO, BAR = (name.encode().ljust(16) for name in ("foo", "bar"))
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
Owned = Mapping[Uuid, Mapping[int, int]]


def member(state: MemberState = STABLE, assigned: Owned | None = None, revoked: Owned | None = None) -> ConsumerMember:
    owned = {FOO: {0: 10, 1: 10}} if assigned is None else assigned
    return ConsumerMember("m", 10, 9, state, assigned=owned, pending_revocation=revoked or {})


def step(
    before: ConsumerMember,
    target: Mapping[Uuid, set[int]],
    reported: Mapping[Uuid, set[int]] | None,
    *,
    epoch: int = 11,
    taken: frozenset[int] = frozenset(),
    subscribed: frozenset[Uuid] = frozenset({FOO, BAR}),
    has_subscription_changed: bool = False,
) -> ConsumerMember:
    assignment = {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
    goal = Target(epoch, assignment, subscribed, has_subscription_changed)
    return reconcile(before, goal, reported, lambda topic_id, partition: partition in taken)


def facts(after: ConsumerMember) -> tuple[MemberState, int, int, Owned, Owned]:
    return after.state, after.member_epoch, after.previous_member_epoch, after.assigned, after.pending_revocation


def test_member_at_its_target_stays_the_same_object() -> None:
    before = member()

    assert step(before, {FOO: {0, 1}}, None, epoch=10) is before


def test_member_with_nothing_to_give_takes_the_target_epoch_at_once() -> None:
    after = step(member(), {FOO: {0, 1, 2}}, None)

    assert facts(after) == (STABLE, 11, 10, {FOO: {0: 10, 1: 10, 2: 11}}, {})


def test_member_gives_first_and_stays_at_its_epoch_meanwhile() -> None:
    after = step(member(), {FOO: {1}, BAR: {5}}, None)

    assert facts(after) == (UNREVOKED, 10, 10, {FOO: {1: 10}}, {FOO: {0: 10}})


def test_member_that_revoked_before_the_request_moves_on() -> None:
    after = step(member(), {FOO: {1}}, {FOO: {1}})

    assert facts(after) == (STABLE, 11, 10, {FOO: {1: 10}}, {})


@pytest.mark.parametrize("reported", [None, {FOO: {0, 1}}, {FOO: {0}}])
def test_member_waits_until_it_reports_the_revocation(reported: Mapping[Uuid, set[int]] | None) -> None:
    before = member(UNREVOKED, {FOO: {1: 10}}, {FOO: {0: 10}})

    assert step(before, {FOO: {1}}, reported) is before


def test_member_moves_on_once_it_no_longer_reports_what_it_had_to_give() -> None:
    before = member(UNREVOKED, {FOO: {1: 10}}, {FOO: {0: 10}})

    after = step(before, {FOO: {1}, BAR: {5}}, {FOO: {1}})

    assert facts(after) == (STABLE, 11, 10, {FOO: {1: 10}, BAR: {5: 11}}, {})


def test_member_gets_back_what_it_has_just_revoked_if_a_later_target_assigns_it() -> None:
    before = member(UNREVOKED, {FOO: {1: 10}}, {FOO: {0: 10}})

    after = step(before, {FOO: {0, 1}}, {FOO: {1}}, epoch=12, taken=frozenset({0}))

    assert facts(after) == (STABLE, 12, 10, {FOO: {0: 12, 1: 10}}, {})


def test_member_gives_more_where_the_target_has_moved_meanwhile() -> None:
    before = member(UNREVOKED, {FOO: {1: 10, 2: 10}}, {FOO: {0: 10}})

    after = step(before, {FOO: {2}}, {FOO: {1, 2}}, epoch=12)

    assert facts(after) == (UNREVOKED, 10, 10, {FOO: {2: 10}}, {FOO: {1: 10}})


def test_member_waits_at_the_new_epoch_for_what_others_still_own() -> None:
    after = step(member(), {FOO: {0, 1, 2, 3}}, None, taken=frozenset({2}))

    assert facts(after) == (UNRELEASED, 11, 10, {FOO: {0: 10, 1: 10, 3: 11}}, {})


def test_member_that_waits_is_unchanged_while_nothing_is_released() -> None:
    before = ConsumerMember("m", 11, 11, UNRELEASED, assigned={FOO: {0: 10}})

    assert step(before, {FOO: {0, 1}}, None, taken=frozenset({1})) is before


def test_member_that_waits_takes_what_is_released() -> None:
    before = ConsumerMember("m", 11, 10, UNRELEASED, assigned={FOO: {0: 10}})

    after = step(before, {FOO: {0, 1}}, None)

    assert facts(after) == (STABLE, 11, 11, {FOO: {0: 10, 1: 11}}, {})


def test_member_that_waits_moves_to_the_next_epoch_where_it_has_all_of_the_target() -> None:
    before = ConsumerMember("m", 11, 11, UNRELEASED, assigned={FOO: {0: 11}})

    after = step(before, {FOO: {0}}, None, epoch=12, taken=frozenset({0}))

    assert facts(after) == (STABLE, 12, 11, {FOO: {0: 11}}, {})


def test_member_that_waits_gives_where_the_target_has_moved_meanwhile() -> None:
    before = ConsumerMember("m", 11, 11, UNRELEASED, assigned={FOO: {0: 11, 1: 11}})

    after = step(before, {FOO: {1}}, None, epoch=12, taken=frozenset({0, 1}))

    assert facts(after) == (UNREVOKED, 11, 11, {FOO: {1: 11}}, {FOO: {0: 11}})


def test_member_that_has_revoked_before_the_request_waits_for_what_others_own() -> None:
    after = step(member(), {FOO: {0, 2}}, {}, taken=frozenset({2}))

    assert facts(after) == (UNRELEASED, 11, 10, {FOO: {0: 10}}, {})


def test_member_that_has_revoked_all_waits_for_what_others_own() -> None:
    before = ConsumerMember("m", 11, 10, UNREVOKED, assigned={FOO: {0: 11}})

    after = step(before, {FOO: {0, 1}}, {FOO: {0}}, taken=frozenset({0, 1}))

    assert facts(after) == (UNRELEASED, 11, 11, {FOO: {0: 11}}, {})


@pytest.mark.parametrize(("epoch", "has_changed"), [(11, False), (11, True), (10, True)])
@pytest.mark.parametrize("still_owns", [False, True])
def test_topic_of_the_target_that_is_no_longer_wanted_is_given_at_each_epoch(
    epoch: int, has_changed: bool, still_owns: bool
) -> None:
    before = member(assigned={FOO: {0: 10}, BAR: {1: 10}})
    reported = {FOO: {0}, BAR: {1}} if still_owns else {FOO: {0}}

    after = step(
        before,
        {FOO: {0}, BAR: {1}},
        reported,
        epoch=epoch,
        subscribed=frozenset({FOO}),
        has_subscription_changed=has_changed,
    )

    given = (UNREVOKED, 10, 10, {FOO: {0: 10}}, {BAR: {1: 10}})
    assert facts(after) == (given if still_owns else (STABLE, epoch, 10, {FOO: {0: 10}}, {}))


def test_nothing_goes_where_a_changed_subscription_wants_the_same() -> None:
    before = member(assigned={FOO: {0: 10}, BAR: {1: 10}})

    assert step(before, {FOO: {0}, BAR: {1}}, None, epoch=10, has_subscription_changed=True) is before


def test_topic_that_the_member_no_longer_wants_goes_whatever_the_target_says() -> None:
    before = member(assigned={FOO: {0: 10}, BAR: {1: 10}})

    after = step(
        before, {FOO: {0}, BAR: {1}}, None, epoch=10, subscribed=frozenset({FOO}), has_subscription_changed=True
    )

    assert facts(after) == (UNREVOKED, 10, 10, {FOO: {0: 10}}, {BAR: {1: 10}})


def test_unsubscribed_topics_join_what_is_already_pending() -> None:
    before = member(UNREVOKED, {FOO: {1: 10}, BAR: {1: 9}}, {FOO: {0: 10}})

    after = step(before, {FOO: {1}}, None, subscribed=frozenset({FOO}), has_subscription_changed=True)

    assert facts(after) == (UNREVOKED, 10, 10, {FOO: {1: 10}}, {FOO: {0: 10}, BAR: {1: 9}})


def test_member_of_an_unknown_state_has_to_come_back_with_nothing() -> None:
    before = member(MemberState.UNKNOWN)

    with pytest.raises(ApiError) as refusal:
        step(before, {FOO: {0}}, None)
    after = step(before, {FOO: {0}}, {})

    assert refusal.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert facts(after) == (STABLE, 11, 10, {FOO: {0: 10}}, {})
