"""The checker of whole clusters is checked: faults planted in production code, each found within some seeds.

With test_raft_checker.py (a vote before its fsync, two voter changes at once, a commit of an earlier epoch's records,
records before their fsync) and test_replica_lives.py (a stale broker epoch in the ISR) there are twenty-one.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.elections import PartitionChange
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.partitions import PartitionControl
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.messages import NONE
from kafkapy.raft.voting import Voting
from kafkapy.replication.brokers import ReplicaBrokers
from kafkapy.replication.follower_log import FollowerLogs
from kafkapy.replication.follower_state import FollowerState
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition import Partition, Role
from kafkapy.server.broker import BrokerServer
from kafkapy.server.broker_logs import BrokerLogs
from kafkapy.server.node import Node
from kafkapy.storage.log.log import Log
from kafkapy.storage.producers.entry import ProducerEntry, StagedProducer
from tests.simulator.cluster_lives import live
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.interpreter import needs_interpreter

FAULTY_SEEDS = 200
"""A planted fault has to be found within so many: from the one where it was found first, by make soak from 0 on."""


def acknowledge_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "acknowledgement", lambda *_: (True, 0))


def commit_what_the_leader_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "_smallest_in_sync_end_offset", lambda _self, log, _now_ms: log.log_end_offset)


def commit_below_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "is_under_min_isr", property(lambda _self: False))
    monkeypatch.setattr(Partition, "effective_min_isr", property(lambda _self: 1))


def count_any_fetch_as_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = FollowerState.record_fetch

    def record_fetch(self: FollowerState, *, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        noted(self, fetch_offset=leader_end_offset, leader_end_offset=leader_end_offset, now_ms=now_ms)

    monkeypatch.setattr(FollowerState, "record_fetch", record_fetch)


def join_the_isr_before_catching_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_to_join(self: HostedPartition, replica_id: int, follower: FollowerState) -> bool:
        can_change = self.role is Role.LEADER and self.pending_isr is None and replica_id not in self.isr
        return can_change and self._may_join(replica_id, follower)

    monkeypatch.setattr(Partition, "_is_to_join", is_to_join)


def write_every_copy_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerEntry, "find_duplicate", lambda _self, _batch: None)


def never_truncate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowerLogs, "truncate", lambda _self, _partition, _offset: None)


def read_what_nobody_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def judge_by_old_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take logs for strays by the metadata that a start finds, not by that of the registration."""
    register, registration_of = BrokerServer._register, BrokerLogs._registration_of
    found: dict[Node, MetadataImage] = {}

    async def remember_and_register(self: BrokerServer) -> None:
        found[self.node] = self._controller.image
        await register(self)

    def old_registration_of(self: BrokerLogs, log: Log) -> PartitionRegistration | None:
        return registration_of(self, log) if log.topic_partition.topic in found[self._node].topics.by_name else None

    monkeypatch.setattr(BrokerServer, "_register", remember_and_register)
    monkeypatch.setattr(BrokerLogs, "_registration_of", old_registration_of)


def serve_any_broker_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerControl, "check_epoch", lambda self, broker_id, _epoch: self.brokers[broker_id])


def serve_any_partition_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    alter_error = PartitionControl._alter_error

    def error_of(self: PartitionControl, *request: Any) -> ErrorCode:
        code = alter_error(self, *request)
        return ErrorCode.NONE if code == ErrorCode.INVALID_UPDATE_VERSION else code

    monkeypatch.setattr(PartitionControl, "_alter_error", error_of)


def serve_any_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Partition.check_leader

    def check_leader(self: Partition, current_leader_epoch: int = -1) -> int:
        return check(self, -1 if current_leader_epoch < self.leader_epoch else current_leader_epoch)

    monkeypatch.setattr(Partition, "check_leader", check_leader)


def serve_any_follower_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaBrokers, "is_stale", lambda *_: False)


def append_of_any_producer_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StagedProducer, "_check_epoch", lambda *_, **__: None)


def take_late_leaders_of_the_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as if the late request were of no account, not that its epoch is over."""
    claim_error = Voting._leader_claim_error

    def error_of(self: Voting, leader_epoch: int, leader_id: int) -> int:
        return claim_error(self, leader_epoch, leader_id) if leader_epoch >= self._current.leader_epoch else NONE

    monkeypatch.setattr(Voting, "_leader_claim_error", error_of)


def never_end_a_reassignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionChange, "_complete_reassignment", lambda _self: None)


@needs_interpreter("faults are planted by replacing methods")
@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (acknowledge_at_once, 3),
        (commit_what_the_leader_has, 0),
        (commit_below_min_isr, 100),
        (count_any_fetch_as_progress, 3),
        (join_the_isr_before_catching_up, 4),
        (write_every_copy_of_a_batch, 4),
        (never_truncate, 3),
        (read_what_nobody_has_decided, 13),
        (judge_by_old_metadata, 0),
        (serve_any_broker_epoch, 0),
        (serve_any_partition_epoch, 0),
        (serve_any_leader_epoch, 0),
        (serve_any_follower_epoch, 0),
        (append_of_any_producer_epoch, 0),
        (take_late_leaders_of_the_quorum, 0),
        (never_end_a_reassignment, 4),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("tests.simulator.cluster_lives.HEAL_S", 20.0)
    first_seed = first_seed if SOAK_FACTOR == 1 else 0
    for seed in range(first_seed, first_seed + FAULTY_SEEDS):
        try:
            live(seed)
        except AssertionError as error:
            print(f"{plant.__name__} is found by seed {seed}: {error}")
            return
    pytest.fail(f"not found in {FAULTY_SEEDS} seeds")
