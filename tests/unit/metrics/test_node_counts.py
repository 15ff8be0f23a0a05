"""What is counted of a controller's operations, of the quorum's latencies, of verifications and of connections."""

from collections.abc import Iterator
from math import isnan

from kafkapy.metrics.operations import OperationCounts
from kafkapy.metrics.quorum import QuorumCounts
from kafkapy.protocol.traffic import SIZE_BYTES, ConnectionTraffic


class Time:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_the_wait_and_the_work_of_a_decision_are_counted_apart() -> None:
    time = Time()
    counts = OperationCounts(time)
    time.ns = 3_000
    began_ns = counts.record_start(0)
    time.ns = 10_000
    counts.record_done(began_ns)
    assert (counts.started, counts.queue_us[3], counts.processing_us[7]) == (1, 1, 1)


def test_pauses_between_the_steps_of_a_notification_are_not_its_work() -> None:
    time = Time()
    counts = OperationCounts(time)

    def steps() -> Iterator[None]:
        for _ in range(3):
            time.ns += 2_000
            yield

    for _ in counts.batch(counts.notification(steps()), 5):
        time.ns += 1_000_000
    assert (counts.processing_us[6], counts.batch_us[6]) == (1, 1)
    assert (counts.started, counts.batch_records[5]) == (1, 1)


def test_an_election_lasts_from_the_last_change_of_role_until_there_is_a_leader() -> None:
    counts = QuorumCounts()
    prospective, candidate, leader = object(), object(), object()
    for role, is_electing, now_ms in ((prospective, True, 100), (prospective, True, 150), (candidate, True, 200)):
        counts.record_role(role, is_electing=is_electing, has_leader=False, now_ms=now_ms)
    assert isnan(counts.election_ms.read(200)[0])
    for now_ms in (230, 300):
        counts.record_role(leader, is_electing=False, has_leader=True, now_ms=now_ms)
    assert counts.election_ms.read(300) == (30, 30)


def test_the_time_of_a_commit_is_by_record() -> None:
    counts = QuorumCounts()
    counts.count_commit(10, 4, 100)
    counts.count_commit(5, 1, 100)
    assert counts.commit_ms.read(100) == (3.75, 5)


def test_the_longest_frame_is_that_of_the_last_minute() -> None:
    traffic = ConnectionTraffic()
    assert isnan(traffic.longest_recent_frame(100_000))
    traffic.count_sent(10, 1)
    traffic.count_sent(7, 2)
    assert traffic.longest_recent_frame(100_000) == 10 + SIZE_BYTES
    traffic.count_sent(5, 1)
    assert traffic.longest_recent_frame(130_000) == 10 + SIZE_BYTES
    assert traffic.longest_recent_frame(155_000) == 5 + SIZE_BYTES
    assert traffic.sent_frames == 4
