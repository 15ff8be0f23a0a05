from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.metadata.registrations import DIRECTORY_LOST, BrokerRegistration, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.brokers import ReplicaBrokers
from kafkapy.replication.follower_state import SessionTimes
from kafkapy.replication.partition import LEGAL_ROLES, Partition, Role
from kafkapy.types import TopicPartition


@dataclass
class FakeLog:
    """Offsets without a log."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    flush_required_to: int = 0
    config: Any = field(default_factory=lambda: SimpleNamespace(min_insync_replicas=1))

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset

    def is_committed(self, end_offset: int) -> bool:
        return self.high_watermark >= end_offset


HOME = b"d" * 16
"""The directory of each broker, and of each replica unless a test says otherwise."""
EMPTY: Mapping[int, bytes] = {}


def registration(
    *,
    leader: int = 1,
    leader_epoch: int = 5,
    partition_epoch: int = 0,
    replicas: Any = (1,),
    isr: Any = None,
    directories: Any = EMPTY,
) -> Any:
    isr = replicas if isr is None else isr
    return PartitionRegistration(
        replicas,
        tuple(directories.get(each, HOME) for each in replicas),
        isr,
        (),
        (),
        (),
        (),
        leader,
        0,
        leader_epoch,
        partition_epoch,
    )


def brokers(*, fenced: Any = (), shutting_down: Any = (), epochs: Any = None) -> ReplicaBrokers:
    """Brokers 1 to 4, as the metadata has them; replica.lag.time.max.ms is 30 s."""
    registered = {
        each: BrokerRegistration(
            id=each,
            epoch=(epochs or {}).get(each, 7),
            incarnation_id=bytes(16),
            endpoints={},
            features={},
            rack=None,
            fenced=each in fenced,
            in_controlled_shutdown=each in shutting_down,
            is_migrating_zk_broker=False,
            directories=(HOME,),
            cordoned_directories=None,
        )
        for each in range(1, 5)
    }
    known = ReplicaBrokers()
    image: Any = SimpleNamespace(cluster=SimpleNamespace(brokers=registered))
    known.announce(image)
    return known


def led(log: FakeLog, *, known: Any = None, **fields: Any) -> "Partition[FakeLog]":
    partition = Partition(TopicPartition("orders", 0), b"i" * 16, log, local_id=1, brokers=known or brokers())
    partition.become_leader(registration(**fields), now_ms=0)
    return partition


def test_with_nobody_else_the_high_watermark_is_the_end_of_the_log() -> None:
    log = FakeLog(log_end_offset=7)
    partition = led(log)
    assert partition.maybe_advance_high_watermark(0)
    assert log.high_watermark == 7
    assert not partition.maybe_advance_high_watermark(0)


def test_the_high_watermark_is_the_smallest_end_offset_of_the_isr() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    assert not partition.maybe_advance_high_watermark(0)
    assert not partition.record_follower_fetch(2, fetch_offset=8, log_start_offset=0, now_ms=0)
    assert partition.record_follower_fetch(3, fetch_offset=6, log_start_offset=0, now_ms=0)
    assert log.high_watermark == 6
    assert not partition.record_follower_fetch(4, fetch_offset=9, log_start_offset=0, now_ms=0)
    assert partition.record_follower_fetch(3, fetch_offset=10, log_start_offset=0, now_ms=0)
    assert log.high_watermark == 8


def test_the_high_watermark_waits_below_min_isr_but_never_for_more_replicas_than_there_are() -> None:
    log = FakeLog(log_end_offset=10, config=SimpleNamespace(min_insync_replicas=2))
    assert not led(log, replicas=(1, 2), isr=(1,)).maybe_advance_high_watermark(0)
    assert led(log, replicas=(1,)).maybe_advance_high_watermark(0)


def test_a_leader_elected_again_keeps_how_far_the_followers_are() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    log.log_end_offset = 12
    assert partition.become_leader(registration(leader_epoch=6, partition_epoch=1, replicas=(1, 2)), now_ms=0)
    assert partition.leader_epoch_start_offset == 12
    assert not partition.maybe_advance_high_watermark(0)
    assert partition.followers[2].log_end_offset == 10


def test_a_leader_that_missed_another_ones_epoch_knows_nothing_of_the_followers() -> None:
    """They may have truncated to the other leader's log meanwhile: what they had told does not commit anything."""
    log = FakeLog(log_end_offset=11, high_watermark=10)
    partition = led(log, replicas=(1, 2, 3))
    partition.record_follower_fetch(3, fetch_offset=11, log_start_offset=0, now_ms=0)
    later = registration(replicas=(1, 2, 3), isr=(1, 3), leader_epoch=7, partition_epoch=2)
    assert partition.become_leader(later, now_ms=1)
    assert not partition.maybe_advance_high_watermark(1)
    assert partition.record_follower_fetch(3, fetch_offset=11, log_start_offset=0, now_ms=2)
    assert log.high_watermark == 11


def test_a_leader_after_another_knows_nothing_of_the_followers() -> None:
    partition = led(FakeLog(log_end_offset=10), replicas=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    partition.become_follower(registration(leader=2, leader_epoch=6, partition_epoch=1, replicas=(1, 2)))
    partition.become_leader(registration(leader_epoch=7, partition_epoch=2, replicas=(1, 2)), now_ms=0)
    assert partition.followers[2].log_end_offset == -1


def test_a_new_leader_gives_its_in_sync_followers_the_whole_lag_to_fetch() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 2))
    partition.become_follower(registration(leader=2, leader_epoch=6, partition_epoch=1, replicas=(1, 2, 3)))
    partition.become_leader(
        registration(leader_epoch=7, partition_epoch=2, replicas=(1, 2, 3), isr=(1, 2)), now_ms=100_000
    )
    assert partition.isr_without_stragglers(130_000) is None
    assert partition.isr_without_stragglers(130_001) == (1,)


@pytest.mark.parametrize(
    ("requested_epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_the_leader_epoch_that_a_client_knows_is_checked(requested_epoch: int, code: ErrorCode) -> None:
    assert led(FakeLog()).check_leader(requested_epoch) == code


def test_what_a_partition_answers_in_each_role() -> None:
    partition = led(FakeLog(), replicas=(1, 2))
    partition.become_follower(registration(leader=2, leader_epoch=6, partition_epoch=2, replicas=(1, 2)))
    assert partition.check_leader() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_leader(5) == ErrorCode.FENCED_LEADER_EPOCH
    partition.go_offline()
    assert partition.check_leader() == ErrorCode.KAFKA_STORAGE_ERROR
    partition.leave()
    assert partition.check_leader() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_resigned_serves_and_acknowledges_nothing_until_a_later_epoch_names_it() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=5)
    partition = led(log, replicas=(1, 2))
    appended_by = partition.follow_count
    assert not partition.resign(leader_epoch=4), "that was an earlier time"
    assert partition.resign(leader_epoch=5)
    assert partition.check_leader() == partition.check_readable() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.acknowledgement(5, appended_by) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.become_leader(registration(partition_epoch=1, replicas=(1, 2), isr=(1,)), now_ms=0)
    assert partition.role is Role.RESIGNED, "metadata from before the other leader's epoch"
    partition.become_leader(registration(leader_epoch=7, partition_epoch=3, replicas=(1, 2), isr=(1,)), now_ms=0)
    assert partition.check_leader(7) == ErrorCode.NONE
    assert partition.acknowledgement(5, appended_by) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER), "may be another's now"
    assert partition.acknowledgement(5, partition.follow_count) == (True, ErrorCode.NONE)


def test_a_leader_that_resigned_follows_the_next_one() -> None:
    partition = led(FakeLog(log_end_offset=10), replicas=(1, 2))
    partition.resign(leader_epoch=5)
    assert partition.become_follower(registration(leader=2, leader_epoch=6, partition_epoch=1, replicas=(1, 2)))
    assert (partition.role, partition.leader_id) == (Role.FOLLOWER, 2)
    assert not partition.resign(leader_epoch=6)


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_roles_follow_the_table(before: Role, after: Role) -> None:
    partition = Partition(TopicPartition("orders", 0), b"i" * 16, FakeLog(), local_id=1, brokers=brokers())
    partition.role = before
    if after in LEGAL_ROLES[before]:
        partition._move_to(after)
    else:
        with pytest.raises(AssertionError):
            partition._move_to(after)


def test_leader_epochs_never_go_back() -> None:
    with pytest.raises(AssertionError):
        led(FakeLog()).become_leader(registration(leader_epoch=4), now_ms=0)


def test_an_append_is_acknowledged_by_the_high_watermark() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=5, config=SimpleNamespace(min_insync_replicas=2))
    partition = led(log, replicas=(1, 2), isr=(1, 2))
    assert partition.acknowledgement(6, 0) == (False, ErrorCode.NONE)
    assert partition.acknowledgement(5, 0) == (True, ErrorCode.NONE)
    partition.become_leader(registration(replicas=(1, 2), isr=(1,), partition_epoch=1), now_ms=0)
    assert partition.acknowledgement(5, 0) == (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    partition.become_follower(registration(leader=2, leader_epoch=6, partition_epoch=2, replicas=(1, 2)))
    assert partition.acknowledgement(5, 0) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_the_low_watermark_waits_for_every_replica_that_lives() -> None:
    log = FakeLog(log_start_offset=4, log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), known=brokers(fenced=(3,)))
    assert partition.low_watermark == -1
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=3, now_ms=0)
    assert partition.low_watermark == 3


# -- another ISR


def test_a_follower_that_has_caught_up_may_join_and_is_waited_for_from_then_on() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=10)
    partition = led(log, replicas=(1, 2), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=9, log_start_offset=0, now_ms=0, broker_epoch=7)
    assert partition.pending_isr is None
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, broker_epoch=7)
    assert partition.pending_isr is not None
    assert (partition.pending_isr.isr, partition.pending_isr.broker_epochs) == ((1, 2), (-1, 7))
    log.log_end_offset = 12
    assert not partition.maybe_advance_high_watermark(10**9)


def test_a_follower_joins_once_it_has_all_from_before_the_leader_epoch() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=4)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 3))
    log.log_end_offset = 12
    partition.record_follower_fetch(2, fetch_offset=9, log_start_offset=0, now_ms=0)
    assert partition.pending_isr is None, "9 is committed, but the epoch began at 10"
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    assert partition.pending_isr is not None


def test_the_high_watermark_waits_for_a_follower_outside_the_isr_while_its_lag_is_short() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 3))
    partition.begin_isr_change((1, 3))  # something else is under way: 2 cannot join yet
    partition.record_follower_fetch(3, fetch_offset=10, log_start_offset=0, now_ms=0)
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    log.log_end_offset = 15
    partition.record_follower_fetch(3, fetch_offset=15, log_start_offset=0, now_ms=1000)
    assert log.high_watermark == 10
    assert partition.maybe_advance_high_watermark(30_001)
    assert log.high_watermark == 15


@pytest.mark.parametrize("directory", [DIRECTORY_LOST, b"f" * 16], ids=("given away", "failed"))
def test_a_follower_without_a_directory_neither_joins_nor_is_waited_for(directory: bytes) -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 2, 3))
    for replica_id in (2, 3):
        partition.record_follower_fetch(replica_id, fetch_offset=10, log_start_offset=0, now_ms=0)
    partition.become_leader(
        registration(partition_epoch=1, replicas=(1, 2, 3), isr=(1, 3), directories={2: directory}), now_ms=0
    )
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    assert partition.pending_isr is None
    log.log_end_offset = 15
    assert partition.record_follower_fetch(3, fetch_offset=15, log_start_offset=0, now_ms=1)
    assert log.high_watermark == 15


@pytest.mark.parametrize(
    "known", [brokers(fenced=(2,)), brokers(shutting_down=(2,)), brokers(epochs={2: 6})], ids=("fenced", "going", "new")
)
def test_a_follower_whose_broker_may_not_be_in_an_isr_neither_joins_nor_is_waited_for(known: ReplicaBrokers) -> None:
    log = FakeLog(log_end_offset=10, high_watermark=10)
    partition = led(log, known=known, replicas=(1, 2), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, broker_epoch=7)
    assert partition.pending_isr is None
    log.log_end_offset = 12
    assert partition.maybe_advance_high_watermark(0)


def test_a_fetch_of_an_earlier_life_of_the_followers_broker_is_no_progress() -> None:
    partition = led(FakeLog(log_end_offset=10), known=brokers(epochs={2: 8}), replicas=(1, 2))
    with pytest.raises(AssertionError):
        partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, broker_epoch=7)


def test_a_change_names_the_broker_epochs_of_when_it_was_decided() -> None:
    partition = led(FakeLog(log_end_offset=10), replicas=(1, 2), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, broker_epoch=7)
    partition.record_follower_fetch(2, fetch_offset=3, log_start_offset=0, now_ms=0, broker_epoch=9)
    assert partition.pending_isr is not None
    assert partition.pending_isr.broker_epochs == (-1, 7)


def test_the_maximal_isr_counts_until_the_controller_answers() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=4)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 2))
    partition.begin_isr_change((1,))
    assert not partition.maybe_advance_high_watermark(0), "2 may still be in sync for the controller"
    assert partition.end_isr_change([1], leader_epoch=5, partition_epoch=1, now_ms=0)
    assert (partition.isr, partition.partition_epoch, log.high_watermark) == ((1,), 1, 10)


def test_a_replica_that_lagged_too_long_is_not_waited_for_though_it_has_all_that_is_committed() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2), isr=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    log.log_end_offset = 15
    assert partition.isr_without_stragglers(30_001) == (1,)
    partition.begin_isr_change((1,))
    assert partition.end_isr_change([1], leader_epoch=5, partition_epoch=1, now_ms=30_001)
    assert log.high_watermark == 15


def test_metadata_older_than_the_controllers_response_is_ignored() -> None:
    partition = led(FakeLog(), replicas=(1, 2), isr=(1, 2))
    partition.begin_isr_change((1,))
    partition.end_isr_change([1], leader_epoch=5, partition_epoch=7, now_ms=0)
    assert not partition.become_leader(registration(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=6), now_ms=0)
    assert (partition.replicas, partition.isr, partition.partition_epoch) == ((1, 2), (1,), 7)


def test_a_follower_ignores_metadata_older_than_what_it_has() -> None:
    partition = led(FakeLog(), replicas=(1, 2), isr=(1, 2), partition_epoch=7)
    assert not partition.become_follower(registration(leader=2, replicas=(1, 2), leader_epoch=5, partition_epoch=6))
    assert (partition.role, partition.leader_id, partition.partition_epoch) == (Role.LEADER, 1, 7)


def test_metadata_that_repeats_the_response_does_not_end_a_later_change() -> None:
    """Else 3, which the controller may have taken in by now, would not be waited for, and could be elected."""
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    partition.end_isr_change([1, 2], leader_epoch=5, partition_epoch=1, now_ms=0)
    partition.record_follower_fetch(3, fetch_offset=10, log_start_offset=0, now_ms=0)
    joining = partition.pending_isr
    assert joining is not None
    partition.become_leader(registration(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1), now_ms=0)
    assert partition.pending_isr is joining
    log.log_end_offset = 20
    partition.record_follower_fetch(2, fetch_offset=20, log_start_offset=0, now_ms=60_000)
    assert log.high_watermark == 10
    partition.become_leader(registration(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=2), now_ms=0)
    assert partition.pending_isr is None, "with a newer partition epoch the controller refuses the change"


def test_a_response_of_another_leader_epoch_changes_nothing() -> None:
    partition = led(FakeLog(), replicas=(1, 2), isr=(1, 2))
    partition.begin_isr_change((1,))
    partition.become_leader(registration(replicas=(1, 2), isr=(1, 2), leader_epoch=6, partition_epoch=1), now_ms=0)
    assert partition.pending_isr is None
    assert not partition.end_isr_change([1], leader_epoch=5, partition_epoch=9, now_ms=0)
    assert partition.isr == (1, 2)


def test_a_response_of_an_older_partition_epoch_changes_nothing() -> None:
    partition = led(FakeLog(), replicas=(1, 2), isr=(1, 2), partition_epoch=4)
    joining = partition.begin_isr_change((1,))
    assert not partition.end_isr_change([1], leader_epoch=5, partition_epoch=3, now_ms=0)
    assert (partition.isr, partition.partition_epoch, partition.pending_isr) == ((1, 2), 4, joining)


def test_an_isr_change_that_the_controller_refuses_is_requested_again_with_the_next_fetch() -> None:
    partition = led(FakeLog(), replicas=(1, 2, 3), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=0, log_start_offset=0, now_ms=0)
    partition.reject_isr_change()
    assert partition.pending_isr is None
    partition.record_follower_fetch(2, fetch_offset=0, log_start_offset=0, now_ms=0)
    assert partition.pending_isr is not None
    assert partition.pending_isr.isr == (1, 2)


def test_an_append_counts_the_maximal_isr_when_it_is_acknowledged() -> None:
    log = FakeLog(log_end_offset=10, high_watermark=10, config=SimpleNamespace(min_insync_replicas=2))
    partition = led(log, replicas=(1, 2), isr=(1,))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    assert partition.pending_isr is not None
    assert partition.acknowledgement(10, 0) == (True, ErrorCode.NONE)


def test_a_follower_that_has_not_caught_up_for_too_long_leaves() -> None:
    log = FakeLog(log_end_offset=10)
    partition = led(log, replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=1000)
    partition.record_follower_fetch(3, fetch_offset=10, log_start_offset=0, now_ms=1000)
    log.log_end_offset = 20
    partition.record_follower_fetch(2, fetch_offset=12, log_start_offset=0, now_ms=30_000)
    assert partition.isr_without_stragglers(31_000) is None
    log.log_end_offset = 30
    partition.record_follower_fetch(2, fetch_offset=20, log_start_offset=0, now_ms=31_000)
    assert partition.isr_without_stragglers(31_001) == (1, 2), "2 had by 31 s what was there at 30 s"


def test_a_follower_that_has_everything_stays_however_long_it_is_silent() -> None:
    partition = led(FakeLog(log_end_offset=10), replicas=(1, 2), isr=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0)
    assert partition.isr_without_stragglers(10**9) is None


# -- a follower whose session does not name the partition again


def test_each_fetch_of_a_session_counts_for_a_partition_that_does_not_move() -> None:
    log, session = FakeLog(log_end_offset=10), SessionTimes()
    partition = led(log, replicas=(1, 2), isr=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, session=session)
    session.last_fetch_ms = 100_000
    log.log_end_offset = 11
    assert partition.isr_without_stragglers(130_000) is None
    assert partition.isr_without_stragglers(130_001) == (1,)


def test_once_the_log_moved_only_the_followers_own_fetches_count() -> None:
    log, session = FakeLog(log_end_offset=10), SessionTimes()
    partition = led(log, replicas=(1, 2), isr=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=10, log_start_offset=0, now_ms=0, session=session)
    session.last_fetch_ms = 100_000
    log.log_end_offset = 11
    partition.followers[2].leave_session(session)
    session.last_fetch_ms = 200_000
    assert partition.isr_without_stragglers(130_001) == (1,)


def test_a_follower_that_is_behind_does_not_rely_on_its_session() -> None:
    log, session = FakeLog(log_end_offset=10), SessionTimes()
    partition = led(log, replicas=(1, 2), isr=(1, 2))
    partition.record_follower_fetch(2, fetch_offset=9, log_start_offset=0, now_ms=0, session=session)
    session.last_fetch_ms = 100_000
    assert partition.isr_without_stragglers(30_001) == (1,)
