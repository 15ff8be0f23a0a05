"""Planted faults that the checker of whole clusters finds by the rule of the invariant that each breaks.

test_cluster_checker.py has faults that any rule may find.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.state import ClassicGroupLog
from kafkapy.group.shard import GroupShard
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.metadata.requested_elections import RequestedElections
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.reactor.processor import Processor
from kafkapy.reactor.request_memory import RequestMemory
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition import Partition, Role
from kafkapy.replication.replica_manager import ALL_ACKS, ReplicaManager
from kafkapy.runtime.coordinators.commit_waits import set_outcome
from kafkapy.runtime.coordinators.shard_host import ShardHost
from tests.simulator.cluster_lives import live
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.interpreter import needs_interpreter

FAULTY_SEEDS = 200
"""A planted fault has to be found within so many: from the one where it was found first, by make soak from 0 on."""


def let_the_high_watermark_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def maybe_advance(self: HostedPartition, now_ms: int) -> bool:
        log = self.log
        assert log is not None
        high_watermark = self._smallest_in_sync_end_offset(log, now_ms)
        if high_watermark == log.high_watermark:
            return False
        log.update_high_watermark(high_watermark)
        return True

    monkeypatch.setattr(Partition, "maybe_advance_high_watermark", maybe_advance)


def elect_in_the_same_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = PartitionRegistration.merge

    def merge_in_the_same_epoch(self: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
        return merge(self, change)._replace(leader_epoch=self.leader_epoch)

    monkeypatch.setattr(PartitionRegistration, "merge", merge_in_the_same_epoch)


def forget_offsets_of_a_loaded_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loaded = GroupShard.on_loaded

    def forget(self: GroupShard, now_ms: int) -> None:
        self.offsets.store._committed.clear()
        on_loaded(self, now_ms)

    monkeypatch.setattr(GroupShard, "on_loaded", forget)


def skip_changes_between_two_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose changes of partitions when several batches become one image."""
    replay = ImageLoader.replay

    def replay_some(self: ImageLoader, records: Iterable[Any]) -> None:
        is_first = self._delta is None
        replay(self, [each for each in records if is_first or not isinstance(each, PartitionChangeRecord)])

    monkeypatch.setattr(ImageLoader, "replay", replay_some)


def append_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer NOT_ENOUGH_REPLICAS although the records were appended."""
    append_records = ReplicaManager._append

    def append_and_refuse(
        self: ReplicaManager, append: PartitionAppend, required_acks: int, origin: AppendOrigin, now_ms: int
    ) -> bool:
        partition = append.partition
        if required_acks != ALL_ACKS or partition.role is not Role.LEADER or not partition.is_under_min_isr:
            return append_records(self, append, required_acks, origin, now_ms)
        is_done = append_records(self, append, 1, origin, now_ms)
        if is_done:
            append.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, None)
        return is_done

    monkeypatch.setattr(ReplicaManager, "_append", append_and_refuse)


def begin_the_same_generation_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ClassicGroupLog.begin_generation

    def begin_generation(self: ClassicGroupLog) -> None:
        begin(self)
        self.generation = max(self.generation - 1, 1)

    monkeypatch.setattr(ClassicGroupLog, "begin_generation", begin_generation)


def respond_before_the_assignment_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer requests that waited, as a SyncGroup does, when the records of the decision are appended."""
    take_waiting = ShardHost._pop_waiting

    def respond(self: ShardHost[Any], parked_responses: Iterable[Any]) -> list[tuple[asyncio.Future[Any], Any]]:
        for future, response in take_waiting(self, parked_responses):
            set_outcome(future, response)
        return []

    monkeypatch.setattr(ShardHost, "_pop_waiting", respond)


def take_offsets_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_offset_commit", lambda *_, **__: None)


def keep_the_bytes_of_answered_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processor, "release", lambda self, _byte_count: self.maybe_resume_waiting())


def receive_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestMemory, "may_receive", lambda *_: True)


def keep_a_task_for_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = ShardHost.committed

    async def committed_and_waiting(self: ShardHost[Any]) -> None:
        self.waiting_forever = asyncio.get_running_loop().create_task(asyncio.sleep(1e9))  # type: ignore[attr-defined]
        await committed(self)

    monkeypatch.setattr(ShardHost, "committed", committed_and_waiting)


def elect_nobody_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer ElectLeaders as if all preferred replicas were leading."""
    monkeypatch.setattr(
        RequestedElections, "_elect", lambda *_: (_ for _ in ()).throw(ApiError(ErrorCode.ELECTION_NOT_NEEDED))
    )


@needs_interpreter("faults are planted by replacing methods")
@pytest.mark.parametrize(
    ("plant", "rule", "first_seed"),
    [
        (let_the_high_watermark_go_back, "I3: ", 3),
        (elect_in_the_same_leader_epoch, "I6: ", 0),
        (forget_offsets_of_a_loaded_shard, "I9: ", 60),
        (skip_changes_between_two_images, "I10: ", 3),
        (append_what_is_refused, "I11: ", 18),
        (begin_the_same_generation_again, "I9, one owner: ", 0),
        (respond_before_the_assignment_is_committed, "I9, one owner: ", 20),
        (take_offsets_of_any_generation, "I9, fenced: ", 0),
        (keep_the_bytes_of_answered_requests, "I13: ", 0),
        (receive_beyond_the_bound, "I13: ", 5),
        (keep_a_task_for_each_commit, "I13: ", 0),
        (elect_nobody_on_request, "I12: ", 0),
    ],
)
def test_a_fault_is_found_by_the_rule_it_breaks(
    plant: Callable[[pytest.MonkeyPatch], None], rule: str, first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("tests.simulator.cluster_lives.HEAL_S", 20.0)
    first_seed = first_seed if SOAK_FACTOR == 1 else 0
    for seed in range(first_seed, first_seed + FAULTY_SEEDS):
        try:
            live(seed)
        except AssertionError as error:
            print(f"{plant.__name__}, seed {seed}: {error}")
            if str(error).startswith(rule):
                return
    pytest.fail(f"not found in {FAULTY_SEEDS} seeds")
