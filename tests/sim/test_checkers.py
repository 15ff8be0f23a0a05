"""Each rule of each checker of the simulator proves itself: against a fault in production code, or in what it sees.

A checker that looks at nothing passes every run. `errors_in` did so for months: it asked its messages whether they are
dataclasses, which none is. So PROOFS names for each place that raises a ViolationError the test that has it raised,
and a new place without one fails here.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_response import PartitionData
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse
from kafkapy.storage.file_names import STRAY_DIRECTORY_SUFFIX, marked_directory
from kafkapy.storage.log.flush import Flush
from kafkapy.storage.log.truncation import truncate_to
from kafkapy.types import TopicPartition
from tests.golden.test_messages import rows
from tests.simulator.cluster_checker import ViolationError
from tests.simulator.cluster_clients import Consumer, IdempotentProducer
from tests.simulator.cluster_effects import EffectsOfSeeds
from tests.simulator.cluster_lives import TOPIC, ClusterLives
from tests.simulator.cluster_transactions import errors_in
from tests.simulator.cluster_world import LOG_DIR
from tests.simulator.crash_enumeration import crashes
from tests.simulator.loop import START_WALL_MS
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.simulator.storage_checks import check_crash
from tests.simulator.storage_script import Script
from tests.simulator.transaction_lives import World
from tests.support.batches import build_batch
from tests.support.interpreter import needs_interpreter

TESTS = Path(__file__).parents[1]
WHERE = TopicPartition(TOPIC, 0)
FAR = 1 << 40

PROOFS: dict[str, str] = {
    "cluster_checker.ClusterChecker.acknowledge": "two_values_are_acknowledged_at_an_offset",
    "cluster_checker.ClusterChecker.see": "two_values_are_read_at_an_offset",
    "cluster_checker.ClusterChecker.note_producer_id": "a_producer_id_is_given_twice",
    "cluster_checker.ClusterChecker.own": "begin_the_same_generation_again",
    "cluster_checker.ClusterChecker.commit_of": "take_offsets_of_any_generation",
    "cluster_checker.ClusterChecker._check_memory": "keep_the_bytes_of_answered_requests",
    "cluster_checker.ClusterChecker._check_image": "the_isr_has_a_stranger",
    "cluster_checker.ClusterChecker._note_leader": "elect_in_the_same_leader_epoch",
    "cluster_checker.ClusterChecker._check_leader": "a_high_watermark_was_higher",
    "cluster_checker.ClusterChecker._check_isr": "the_leader_knows_less_of_the_isr",
    "cluster_checker.ClusterChecker._check_logs": "a_replica_has_another_byte",
    "cluster_checker.ClusterChecker._check_strays": "a_log_is_taken_for_a_stray",
    "cluster_checker.ClusterChecker._check_records": "an_acknowledged_record_is_not_there",
    "cluster_checker.ClusterChecker._check_order": "a_producer_was_acknowledged_more_than_there_is",
    "cluster_checker.ClusterChecker._check_images": "skip_changes_between_two_images",
    "cluster_clients.IdempotentProducer._take": "a_producer_is_told_of_a_gap",
    "cluster_clients.Consumer._take": "a_consumer_is_out_of_range",
    "cluster_clients.Committer.fetch": "forget_offsets_of_a_loaded_shard",
    "cluster_transactions.TransactionClients.finish": "read_what_nobody_has_decided",
    "stale_requests.StaleRequests.send_all": "serve_any_broker_epoch",
    "replica_lives.Checker.acknowledge": "acknowledge_at_once",
    "replica_lives.Checker.look": "commit_below_min_isr",
    "replica_lives.Checker.finish": "never_truncate",
    "replica_lives.Checker._read": "never_truncate",
    "streams_checker.StreamsChecker.check_log": "give_what_others_run",
    "streams_checker.StreamsChecker.check_members": "take_tasks_for_released",
    "streams_checker.StreamsChecker.check_epochs": "load_an_older_epoch",
    "streams_checker.StreamsChecker.check_settled": "leave_a_member_without_tasks",
    "streams_checker.ToldTasks.check_coordinator": "respond_before_it_is_committed",
    "streams_checker.ToldTasks.note_tasks": "respond_at_once_while_nobody_looks",
    "streams_checker.ToldTasks.note_epoch": "respond_at_once_and_fence_nobody",
    "streams_checker.ToldTasks.note_commit": "take_commits_of_anybody",
    "year_lives.YearChecker._check_logs": "test_replicas_differ",
    "year_lives.YearChecker._check_starts": "test_more_is_gone_than_was_to_be_deleted",
    "year_lives.YearChecker._check_records": "test_a_record_is_another_or_was_refused",
    "year_lives.YearChecker._check_order": "test_a_number_is_missing_or_the_last_ones_are",
    "year_lives.Reader._recover": "test_a_reader_is_sent_back_to_what_it_has_read",
    "year_lives.Trimmer.step": "test_what_was_deleted_is_there",
}
"""By place, the test or the planted fault that has it raise."""


def places_that_raise() -> Iterator[str]:
    for path in sorted((TESTS / "simulator").glob("*.py")):
        for defined in ast.parse(path.read_text()).body:
            for each in defined.body if isinstance(defined, ast.ClassDef) else (defined,):
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and "raise ViolationError" in ast.unparse(
                    each
                ):
                    owner = f"{defined.name}." if isinstance(defined, ast.ClassDef) else ""
                    yield f"{path.stem}.{owner}{each.name}"


def test_each_rule_has_a_proof_that_is_run() -> None:
    assert set(places_that_raise()) == PROOFS.keys()
    defined = {
        each.name
        for path in (TESTS / "sim").glob("test_*.py")
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(PROOFS.values()) <= defined


def test_the_errors_of_every_response_are_found() -> None:
    """Against what its text says, for each response at each version that Apache Kafka's classes wrote."""
    count = 0
    for row in rows():
        if row.message.endswith("Response"):
            message = row.kind.decode(row.data, row.version)
            expected = [int(code) for code in re.findall(r"error_code=(-?\d+)", repr(message))]
            assert list(errors_in(message)) == expected
            count += len(expected)
    assert count > 500


# -- what a checker sees, damaged at the end of a run -------------------------------------------------------------


@contextmanager
def two_values_are_acknowledged_at_an_offset(lives: ClusterLives) -> Iterator[None]:
    lives.checker.acknowledge(TOPIC, 0, FAR, [b"one"])
    with pytest.raises(ViolationError, match=r"I2: .* was acknowledged for"):
        lives.checker.acknowledge(TOPIC, 0, FAR, [b"other"])
    with pytest.raises(ViolationError, match="I1: b'one' was acknowledged"):
        yield
    lives.checker.acknowledged[WHERE].pop(FAR)
    lives.checker._seen[WHERE].pop(FAR)


@contextmanager
def two_values_are_read_at_an_offset(lives: ClusterLives) -> Iterator[None]:
    lives.checker.see(TOPIC, 0, FAR, b"one")
    with pytest.raises(ViolationError, match=r"I2: offset .* holds"):
        lives.checker.see(TOPIC, 0, FAR, b"other")
    with pytest.raises(ViolationError, match="I1: b'one' was read"):
        yield
    lives.checker._seen[WHERE].pop(FAR)


@contextmanager
def an_acknowledged_record_is_not_there(lives: ClusterLives) -> Iterator[None]:
    offset, value = next(iter(lives.checker.acknowledged[WHERE].items()))
    lives.checker.acknowledged[WHERE][offset] = b"other"
    with pytest.raises(ViolationError, match="I1: b'other' was acknowledged at"):
        yield
    lives.checker.acknowledged[WHERE][offset] = value


@contextmanager
def a_refused_record_is_there(lives: ClusterLives) -> Iterator[None]:
    value = next(iter(lives.checker.acknowledged[WHERE].values()))
    lives.checker.refuse(TOPIC, 0, value)
    with pytest.raises(ViolationError, match="I11: "):
        yield
    lives.checker._refused[WHERE].discard(value)


@contextmanager
def a_producer_was_acknowledged_more_than_there_is(lives: ClusterLives) -> Iterator[None]:
    lives.checker.note_order(TOPIC, 0, "nobody", [b"nobody 0"])
    with pytest.raises(ViolationError, match="I1: nobody was acknowledged 1 records"):
        yield
    with pytest.raises(ViolationError, match="I4: nobody wrote 0, 1, 2"):
        lives.checker._check_order("nobody", [], {0: b"nobody 0", 1: b"nobody 2"})
    lives.checker._order.clear()


@contextmanager
def a_producer_id_is_given_twice(lives: ClusterLives) -> Iterator[None]:
    lives.checker.note_producer_id(FAR, "one")
    with pytest.raises(ViolationError, match="was given to one, other"):
        lives.checker.note_producer_id(FAR, "other")
    yield


@contextmanager
def the_isr_has_a_stranger(lives: ClusterLives) -> Iterator[None]:
    image = lives.world.image()
    assert image is not None
    topic = image.topics.by_name[TOPIC]
    registration = topic.partitions[0]
    topic.partitions[0] = registration._replace(isr=(99,))  # type: ignore[index]
    with pytest.raises(ViolationError, match="I7: "):
        lives.checker._check_image(image)
    others = tuple(each for each in registration.isr if each != registration.leader)
    topic.partitions[0] = registration._replace(isr=others)  # type: ignore[index]
    with pytest.raises(ViolationError, match="I6: "):
        lives.checker._check_image(image)
    topic.partitions[0] = registration  # type: ignore[index]
    yield


@contextmanager
def a_high_watermark_was_higher(lives: ClusterLives) -> Iterator[None]:
    before = dict(lives.checker._offsets)
    lives.checker._offsets.update({life: (FAR, *offsets[1:]) for life, offsets in before.items() if life[0] == WHERE})
    with pytest.raises(ViolationError, match="I3: "):
        yield
    lives.checker._offsets = before


@contextmanager
def the_leader_knows_less_of_the_isr(lives: ClusterLives) -> Iterator[None]:
    _, leader = replicas_of(lives)[0]
    isr, leader.isr = leader.isr, (leader.leader_id,)
    with pytest.raises(ViolationError, match="the controller's ISR of"):
        yield
    leader.isr = isr


@contextmanager
def a_replica_has_another_byte(lives: ClusterLives) -> Iterator[None]:
    computer, replica = replicas_of(lives)[-1]
    segment = replica.log.segments.active
    (byte,) = segment.log.file.pread(1, segment.size - 1)
    with computer.disk.undisturbed():
        segment.log.file.pwrite((bytes([byte ^ 1]),), segment.size - 1)
        with pytest.raises(ViolationError, match="I8: "):
            yield
        segment.log.file.pwrite((bytes([byte]),), segment.size - 1)


@contextmanager
def a_log_is_taken_for_a_stray(lives: ClusterLives) -> Iterator[None]:
    computer = lives.world.brokers[0]
    path = f"{LOG_DIR}/{marked_directory(WHERE, bytes(16), STRAY_DIRECTORY_SUFFIX)}"
    computer.disk.make_directory(path)
    with pytest.raises(ViolationError, match="for a stray log"):
        yield
    computer.disk.delete_tree(path)


@contextmanager
def a_producer_is_told_of_a_gap(lives: ClusterLives) -> Iterator[None]:
    producer = next(each for each in lives.clients if isinstance(each, IdempotentProducer))
    producer._unacknowledged = [producer._new_batch(1)]
    with pytest.raises(ViolationError, match=r"I4: .* was told OUT_OF_ORDER_SEQUENCE_NUMBER"):
        producer._take(PartitionProduceResponse(0, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    yield


@contextmanager
def a_consumer_is_out_of_range(lives: ClusterLives) -> Iterator[None]:
    consumer = next(each for each in lives.clients if isinstance(each, Consumer))
    place = next(iter(consumer._places.values()))
    with pytest.raises(ViolationError, match=r"I1: .* has read to"):
        consumer._take(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), place)
    consumer.position = FAR
    data = bytes(build_batch([(START_WALL_MS, None, b"too early", ())]))
    with pytest.raises(ViolationError, match=r"I1: .* was given"):
        consumer._take(PartitionData(high_watermark=1, records=data), place)
    yield


@contextmanager
def a_replica_lacks_what_is_committed(lives: ClusterLives) -> Iterator[None]:
    """The last one: it cannot be put right again."""
    computer, replica = replicas_of(lives)[-1]
    with computer.disk.undisturbed():
        truncate_to(replica.log, replica.log.log_end_offset - 1)
    with pytest.raises(ViolationError, match=f"node {computer.node_id} is in the ISR of"):
        yield


DAMAGES: tuple[Callable[[ClusterLives], Any], ...] = (
    two_values_are_acknowledged_at_an_offset,
    two_values_are_read_at_an_offset,
    an_acknowledged_record_is_not_there,
    a_refused_record_is_there,
    a_producer_was_acknowledged_more_than_there_is,
    a_producer_id_is_given_twice,
    the_isr_has_a_stranger,
    a_high_watermark_was_higher,
    the_leader_knows_less_of_the_isr,
    a_replica_has_another_byte,
    a_log_is_taken_for_a_stray,
    a_producer_is_told_of_a_gap,
    a_consumer_is_out_of_range,
    a_replica_lacks_what_is_committed,
)


def replicas_of(lives: ClusterLives) -> list[Any]:
    """Return the computers of a partition with their replicas, the leader first."""
    found = [(each, each.partition(WHERE)) for each in lives.world.brokers]
    return sorted((each for each in found if each[1] is not None), key=lambda each: not each[1].is_leader)


def test_the_checker_of_clusters_sees_each_damage_at_the_end_of_a_run() -> None:
    seen = []

    async def main(loop: ProcessLoop) -> None:
        lives = ClusterLives(loop, seed=0)
        await lives.run()
        for damage in DAMAGES:
            with damage(lives):
                lives.checker.finish()
            seen.append(damage)

    run_processes(main, seed=0, limit_seconds=600)
    assert len(seen) == len(DAMAGES)


# -- checkers that assert -----------------------------------------------------------------------------------------


@needs_interpreter("faults are planted by replacing methods")
def test_the_checker_of_crashes_finds_a_flush_that_syncs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flush, "run", lambda self: setattr(self, "is_done", True))
    with pytest.raises(AssertionError):
        _ = [check_crash(crash, is_thorough=False) for crash in crashes(Script(1).run(60), stride=7)]


def test_the_checker_of_transactions_finds_an_aborted_one_that_is_read() -> None:
    sound, damaged = World(0), World(0)
    for world in (sound, damaged):
        world.live()
    sound.check()
    outcomes = next(each for each in damaged.outcomes.values() if each.committed)
    outcomes.aborted.add(min(outcomes.committed))
    with pytest.raises(AssertionError):
        damaged.check()


def test_faults_of_disks_that_nothing_meets_are_told() -> None:
    effects = EffectsOfSeeds()
    effects.note(1, Counter({"write": 1}))
    effects.check({"failed": 1.0})
    with pytest.raises(AssertionError, match=r"full: in 0\.0%"):
        effects.check({"full": 0.04})
