"""Every pair of states of a transactional id."""

from itertools import product

import pytest

from kafkapy.transaction import metadata as steps
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.states import NEXT_STATES, STATE_BY_SHOWN_NAME, TransactionState
from kafkapy.types import TopicPartition

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
DEAD, PREPARE_EPOCH_FENCE = TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE

LEGAL = {
    (EMPTY, EMPTY),
    (EMPTY, ONGOING),
    (EMPTY, PREPARE_ABORT),
    (EMPTY, DEAD),
    (ONGOING, ONGOING),
    (ONGOING, PREPARE_COMMIT),
    (ONGOING, PREPARE_ABORT),
    (PREPARE_COMMIT, COMPLETE_COMMIT),
    (PREPARE_ABORT, COMPLETE_ABORT),
    (COMPLETE_COMMIT, EMPTY),
    (COMPLETE_COMMIT, ONGOING),
    (COMPLETE_COMMIT, PREPARE_ABORT),
    (COMPLETE_COMMIT, DEAD),
    (COMPLETE_ABORT, EMPTY),
    (COMPLETE_ABORT, ONGOING),
    (COMPLETE_ABORT, PREPARE_ABORT),
    (COMPLETE_ABORT, DEAD),
    (PREPARE_EPOCH_FENCE, PREPARE_ABORT),
}
STEPPED_TO = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
"""Targets that a step exists for, whatever the state is."""


@pytest.mark.parametrize(("source", "target"), list(product(TransactionState, TransactionState)))
def test_a_state_leads_to_what_the_table_says_and_nowhere_else(
    source: TransactionState, target: TransactionState
) -> None:
    assert (target in NEXT_STATES[source]) == ((source, target) in LEGAL)


@pytest.mark.parametrize(("source", "target"), list(product(TransactionState, STEPPED_TO)))
def test_a_step_outside_of_the_table_is_an_assertion(source: TransactionState, target: TransactionState) -> None:
    if (source, target) in LEGAL:
        assert step(metadata_in(source), target).state is target
    else:
        with pytest.raises(AssertionError):
            step(metadata_in(source), target)


def test_a_transaction_is_prepared_while_its_decided_end_is_written() -> None:
    assert [state for state in TransactionState if state.is_prepared] == [PREPARE_COMMIT, PREPARE_ABORT]


@pytest.mark.parametrize("source", TransactionState)
def test_only_a_decided_transaction_completes_and_as_it_was_decided(source: TransactionState) -> None:
    ends = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
    if source in ends:
        assert steps.completed(metadata_in(source), now_ms=5).state is ends[source]
    else:
        with pytest.raises(AssertionError):
            steps.completed(metadata_in(source), now_ms=5)


def test_states_are_shown_by_kafkas_names() -> None:
    assert COMPLETE_COMMIT.shown_name == "CompleteCommit"
    assert STATE_BY_SHOWN_NAME["PrepareEpochFence"] is PREPARE_EPOCH_FENCE


def metadata_in(state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(7, producer_epoch=3, state=state, timeout_ms=60_000, last_update_ms=1)


def step(metadata: TransactionMetadata, target: TransactionState) -> TransactionMetadata:
    if target is EMPTY:
        return steps.with_epoch_bumped(metadata, last_producer_epoch=-1, timeout_ms=60_000, now_ms=5)
    if target is ONGOING:
        added = [TopicPartition("orders", 0)]
        return steps.with_partitions(metadata, added, client_transaction_version=0, now_ms=5)
    return steps.prepared(metadata, target, now_ms=5)
