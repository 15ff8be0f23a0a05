"""High watermark, check-quorum, caught-up replicas, and what voter changes do to them."""

import pytest

from kafkapy.raft.progress import OBSERVER_SESSION_TIMEOUT_MS, QuorumProgress
from kafkapy.raft.voters import OffsetHistory, VoterHistory, VoterSet, static_voter
from kafkapy.types import ReplicaKey
from tests.support.quorums import local_voter


def key(node_id: int) -> ReplicaKey:
    return local_voter(node_id).key


def voters(*node_ids: int) -> VoterSet:
    return VoterSet(map(local_voter, node_ids))


@pytest.mark.parametrize(
    ("own", "fetched", "high_watermark"),
    [(12, {}, -1), (12, {2: 11}, 11), (11, {2: 15}, 11), (12, {2: 11, 3: 12}, 12), (12, {2: 10, 3: 10}, -1)],
)
def test_the_high_watermark_is_what_a_majority_has_of_the_own_epoch(
    own: int, fetched: dict[int, int], high_watermark: int
) -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3), epoch_start_offset=10)
    progress.set_local_durable(own)
    for node_id, offset in fetched.items():
        progress.record_fetch(key(node_id), offset, 20, now_ms=1)
    progress.maybe_advance_high_watermark()
    assert progress.high_watermark == high_watermark


def test_the_high_watermark_does_not_go_back_with_a_replica() -> None:
    progress = QuorumProgress(key(1), voters(1, 2), epoch_start_offset=0)
    progress.set_local_durable(9)
    progress.record_fetch(key(2), 8, 9, now_ms=1)
    assert progress.maybe_advance_high_watermark()
    progress.record_fetch(key(2), 3, 9, now_ms=2)
    assert not progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 8


def test_observers_do_not_count() -> None:
    progress = QuorumProgress(key(1), voters(1, 2), epoch_start_offset=0)
    progress.set_local_durable(9)
    assert not progress.record_fetch(key(3), 9, 9, now_ms=1)
    assert not progress.record_fetch(ReplicaKey(2, b"another disk----"), 9, 9, now_ms=1)
    assert not progress.maybe_advance_high_watermark()


def test_a_removed_leader_does_not_count_itself() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3), epoch_start_offset=0)
    progress.set_local_durable(9)
    progress.record_fetch(key(2), 5, 9, now_ms=1)
    progress.set_voters(voters(2, 3))
    assert not progress.maybe_advance_high_watermark()
    assert not progress.record_fetch(key(3), 6, 9, now_ms=1)
    assert progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 5


def test_a_majority_of_fetches_shows_that_the_leader_still_leads() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3, 4, 5), epoch_start_offset=0)
    assert not progress.record_contact(key(2))
    assert not progress.record_contact(key(2))
    assert progress.record_contact(key(3))
    assert not progress.record_contact(key(3))


def test_fewer_voters_make_a_majority_of_those_that_have_fetched() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3, 4), epoch_start_offset=0)
    assert not progress.record_contact(key(2))
    progress.set_voters(voters(1, 2, 3))
    assert progress.record_contact(key(9)), "whoever asks next"


def test_a_removed_leader_needs_a_majority_without_itself() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3), epoch_start_offset=0)
    progress.set_voters(voters(2, 3))
    assert not progress.record_contact(key(2))
    assert not progress.record_contact(key(2))
    assert progress.record_contact(key(3))


def test_a_new_voter_lifts_the_high_watermark_or_leaves_it() -> None:
    progress = QuorumProgress(key(1), voters(1, 2), epoch_start_offset=5)
    progress.set_local_durable(15)
    progress.record_fetch(key(2), 10, 15, now_ms=1)
    assert progress.maybe_advance_high_watermark()
    progress.record_fetch(key(3), 15, 15, now_ms=1)
    assert not progress.maybe_advance_high_watermark(), "it does not count yet"
    progress.set_voters(voters(1, 2, 3))
    assert progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 15
    progress.record_fetch(key(4), 10, 15, now_ms=1)
    progress.set_voters(voters(1, 2, 3, 4))
    progress.set_local_durable(16)
    assert not progress.maybe_advance_high_watermark()
    progress.record_fetch(key(3), 16, 16, now_ms=2)
    progress.record_fetch(key(4), 16, 16, now_ms=2)
    assert progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 16


def test_a_removed_voter_does_not_count_and_takes_nothing_back() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3), epoch_start_offset=5)
    progress.set_local_durable(15)
    progress.record_fetch(key(2), 15, 15, now_ms=1)
    progress.record_fetch(key(3), 10, 15, now_ms=1)
    assert progress.maybe_advance_high_watermark()
    progress.set_voters(voters(1, 3))
    progress.set_local_durable(17)
    assert not progress.maybe_advance_high_watermark()
    progress.record_fetch(key(2), 17, 17, now_ms=2)
    assert not progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 15
    progress.record_fetch(key(3), 16, 17, now_ms=2)
    assert progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 16


def test_static_voters_keep_their_progress_when_their_directories_become_known() -> None:
    static = VoterSet(static_voter(node_id) for node_id in (1, 2, 3))
    progress = QuorumProgress(key(1), static, epoch_start_offset=0)
    progress.set_local_durable(10)
    progress.record_fetch(key(2), 10, 10, now_ms=1)
    assert progress.maybe_advance_high_watermark()
    progress.set_voters(voters(1, 2, 3))
    progress.set_local_durable(15)
    assert progress.voters[2].durable_end_offset == 10
    assert not progress.observers
    progress.record_fetch(key(3), 13, 15, now_ms=2)
    assert progress.maybe_advance_high_watermark()
    assert progress.high_watermark == 13


def test_a_leader_never_loses_what_it_had() -> None:
    progress = QuorumProgress(key(1), voters(1), epoch_start_offset=0)
    progress.set_local_durable(10)
    progress.set_local_durable(10)
    with pytest.raises(AssertionError):
        progress.set_local_durable(9)


def test_an_observer_that_becomes_voter_keeps_its_progress() -> None:
    progress = QuorumProgress(key(1), voters(1), epoch_start_offset=0)
    progress.set_local_durable(9)
    progress.record_fetch(key(2), 9, 9, now_ms=5)
    assert progress.is_caught_up(key(2), 6)
    progress.set_voters(voters(1, 2))
    assert progress.voters[2].durable_end_offset == 9
    assert not progress.observers


def test_caught_up_is_who_reached_the_end_of_the_fetch_before() -> None:
    progress = QuorumProgress(key(1), voters(1), epoch_start_offset=0)
    progress.record_fetch(key(2), 0, 10, now_ms=100)
    assert not progress.is_caught_up(key(2), 100)
    progress.record_fetch(key(2), 10, 20, now_ms=200)
    assert progress.is_caught_up(key(2), 200)
    assert progress.observers[key(2)].last_caught_up_ms == 100


def test_silent_observers_are_forgotten() -> None:
    progress = QuorumProgress(key(1), voters(1), epoch_start_offset=0)
    progress.record_fetch(key(2), 0, 10, now_ms=100)
    progress.set_voters(voters(3))
    progress.record_fetch(key(3), 0, 10, now_ms=100)
    progress.forget_silent_observers(99 + OBSERVER_SESSION_TIMEOUT_MS)
    assert list(progress.observers) == [key(2), key(1)]
    progress.forget_silent_observers(100 + OBSERVER_SESSION_TIMEOUT_MS)
    assert list(progress.observers) == [key(1)], "a leader that is no voter stays"


def test_the_most_advanced_voters_are_preferred_as_successors() -> None:
    progress = QuorumProgress(key(1), voters(1, 2, 3, 4), epoch_start_offset=0)
    progress.record_fetch(key(3), 9, 10, now_ms=1)
    progress.record_fetch(key(2), 4, 10, now_ms=1)
    assert progress.successors() == (key(3), key(2), key(4))


def test_a_voter_set_holds_when_appended_and_goes_with_a_truncation() -> None:
    history = VoterHistory(voters(1))
    history.add_kraft_version(4, 1)
    history.add_voters(5, voters(1, 2))
    history.add_voters(9, voters(1, 2, 3))
    assert history.current == voters(1, 2, 3)
    assert history.before(9) == voters(1, 2)
    history.truncate_to(9)
    assert (history.current, history.current_offset, history.kraft_version) == (voters(1, 2), 5, 1)
    history.truncate_to(3)
    assert (history.current, history.current_offset, history.kraft_version) == (voters(1), -1, 0)


def test_trimming_keeps_the_set_that_holds_at_the_start() -> None:
    history: OffsetHistory[str] = OffsetHistory([(2, "a"), (5, "b"), (9, "c")])
    history.trim_before(7)
    assert history.entries == [(5, "b"), (9, "c")]


def test_only_one_voter_may_change_at_a_time() -> None:
    assert voters(1, 2, 3).overlaps_majority_of(voters(1, 2))
    assert voters(1, 2, 3).overlaps_majority_of(voters(1, 2, 3, 4))
    assert not voters(1, 2, 3).overlaps_majority_of(voters(1))
