"""The checker of Raft clusters is checked: faults planted in production code, each found within some seeds."""

from collections.abc import Callable

import pytest

from kafkapy.errors import StorageError
from kafkapy.raft.effects import ElectionState
from kafkapy.raft.membership import Membership
from kafkapy.raft.messages import NONE, NOT_LEADER_OR_FOLLOWER
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.replication import FollowerReplication
from kafkapy.storage.metadata.quorum_state import QuorumStateFile, encode_quorum_state
from tests.sim.test_raft_faults import test_all_faults_at_once_do_no_harm as run_all_faults
from tests.simulator.raft_runs import FACTOR
from tests.support.interpreter import needs_interpreter

FAULTY_SEEDS = 200
"""A planted fault has to be found within so many: from the one where it was found first, by make soak from 0 on."""


def respond_to_a_vote_before_its_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(file: QuorumStateFile, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        opened = file._disk.open(file.path + ".tmp", create=True)
        opened.truncate(0)
        opened.pwrite(encode_quorum_state(state, kraft_version, voter_ids), 0)
        opened.close()
        file._disk.rename(file.path + ".tmp", file.path)

    monkeypatch.setattr(QuorumStateFile, "write", write)


def change_two_voters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def voter_change_error(self: Membership, *_: object) -> tuple[int, None]:
        return (NONE if self._current.is_leader else NOT_LEADER_OR_FOLLOWER), None

    monkeypatch.setattr(Membership, "_voter_change_error", voter_change_error)


def commit_records_of_earlier_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def maybe_advance_high_watermark(self: QuorumProgress) -> bool:
        end_offsets = sorted((voter.durable_end_offset for voter in self.voters.values()), reverse=True)
        before, self.high_watermark = self.high_watermark, max(self.high_watermark, end_offsets[len(end_offsets) // 2])
        return self.high_watermark > before

    monkeypatch.setattr(QuorumProgress, "maybe_advance_high_watermark", maybe_advance_high_watermark)


def acknowledge_records_before_their_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    send = FollowerReplication.send_fetch

    def send_fetch(self: FollowerReplication, node_id: int, now_ms: int) -> bool:
        log = self._replica.log
        durable_end_offset = log.durable_end_offset
        log.durable_end_offset = log.end_offset
        was_sent = send(self, node_id, now_ms)
        log.durable_end_offset = durable_end_offset
        return was_sent

    monkeypatch.setattr(FollowerReplication, "send_fetch", send_fetch)


@needs_interpreter("faults are planted by replacing methods")
@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (respond_to_a_vote_before_its_fsync, 0),
        (change_two_voters_at_once, 17),
        (commit_records_of_earlier_epochs, 0),
        (acknowledge_records_before_their_fsync, 0),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    first_seed = first_seed if FACTOR == 1 else 0
    for seed in range(first_seed, first_seed + FAULTY_SEEDS):
        try:
            run_all_faults(seed)
        except (AssertionError, StorageError) as error:
            print(f"{plant.__name__} is found by seed {seed}: {error}")
            return
    pytest.fail(f"not found in {FAULTY_SEEDS} seeds")
