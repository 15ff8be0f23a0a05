"""What a transaction shard decides; tests/golden/test_transactions.py compares the whole table with Apache Kafka's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.transaction.decision import NeedsProducerId
from kafkapy.transaction.filters import TransactionFilters
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.states import TransactionState
from tests.support.transaction_world import COORDINATOR_EPOCH, ORDERS, TIMEOUT_MS, TRADES, TransactionWorld, X

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
WEEK_MS = 7 * 24 * 3_600_000


# -- InitProducerId -----------------------------------------------------------------------------------------------


def test_a_new_id_has_epoch_0_and_a_known_one_the_next() -> None:
    world = TransactionWorld()
    assert world.started() == (1000, 0)
    assert world.started() == (1000, 1)


def test_the_current_epoch_is_bumped_and_the_one_before_gets_the_current_one_again() -> None:
    world = TransactionWorld()
    first = world.started()
    second = world.started(producer=first)
    assert second == (1000, 1)
    assert world.started(producer=first) == second
    assert world.started(producer=second) == (1000, 2)
    assert world.init(producer=first).error_code == FENCED
    assert world.init(producer=first, version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_another_producer_that_starts_takes_the_right_to_retry_away() -> None:
    world = TransactionWorld()
    first = world.started()
    world.started()
    assert world.init(producer=first).error_code == FENCED


def test_after_a_load_the_epoch_before_is_fenced_for_it_is_not_in_the_log() -> None:
    world = TransactionWorld()
    first = world.started()
    world.started(producer=first)
    world.reload()
    assert world.init(producer=first).error_code == FENCED


@pytest.mark.parametrize(("transaction_version", "epoch_after_abort"), [(2, 6), (1, 6), (0, 6)])
def test_a_transaction_under_way_is_aborted_with_a_bump_and_the_next_call_bumps_again(
    transaction_version: int, epoch_after_abort: int
) -> None:
    world = TransactionWorld(transaction_version)
    for _ in range(6):
        producer = world.started()
    world.add(producer)
    assert world.init().error_code == CONCURRENT
    assert (world.state.state, world.state.producer_epoch) == (TransactionState.COMPLETE_ABORT, epoch_after_abort)
    assert world.started() == (1000, 7)


@pytest.mark.parametrize(("transaction_version", "value_version"), [(0, 0), (1, 1), (2, 1)])
def test_values_are_flexible_from_transaction_version_1_on(transaction_version: int, value_version: int) -> None:
    world = TransactionWorld(transaction_version)
    world.started()
    values = [value for _, value in world.log if value is not None]
    assert {int.from_bytes(value[:2], "big") for value in values} == {value_version}


def test_without_a_producer_id_at_hand_nothing_is_decided() -> None:
    world = TransactionWorld()
    world.has_producer_ids = False
    with pytest.raises(NeedsProducerId):
        world.init()
    assert not world.log
    world.has_producer_ids = True
    assert world.started() == (1000, 0)


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer": (5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"producer": (-1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_bad_requests_are_refused(request_fields: dict[str, Any], code: ErrorCode) -> None:
    world = TransactionWorld()
    response = world.init(**request_fields)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


def test_after_the_last_epoch_comes_a_new_producer_id_and_a_retry_gets_it_again() -> None:
    world = TransactionWorld()
    put_empty(world, producer_epoch=32766)
    renewed = world.started(producer=(7, 32766))
    assert renewed == (1000, 0)
    assert world.started(producer=(7, 32766)) == renewed
    assert world.started(producer=renewed) == (1000, 1)


# -- partitions ---------------------------------------------------------------------------------------------------


def test_adding_what_is_there_writes_nothing() -> None:
    world = TransactionWorld()
    producer = world.started()
    assert world.add(producer, [ORDERS, TRADES]) == NONE
    written = len(world.log)
    assert world.add(producer, [TRADES]) == NONE
    assert len(world.log) == written


def test_a_transaction_begins_with_its_first_partition() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.now_ms += 5
    world.add(producer, [ORDERS])
    began_ms = world.now_ms
    world.now_ms += 5
    world.add(producer, [TRADES])
    assert (world.state.start_ms, world.state.last_update_ms) == (began_ms, began_ms + 5)


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED), (5, FENCED)])
def test_a_fenced_producer_gets_the_code_that_its_version_knows(version: int, code: ErrorCode) -> None:
    world = TransactionWorld()
    stale = world.started()
    world.started()
    assert world.add(stale, version=version) == code
    assert world.end(stale, is_commit=True, version=min(version, 4))[0] == code
    if version < 5:
        assert world.add_offsets(stale, version=version) == code


def test_verification_distinguishes_partitions() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer, [ORDERS])
    assert world.verify(producer, ORDERS, TRADES) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert world.verify((producer[0], producer[1] + 1), ORDERS) == [FENCED]
    assert world.verify((1, 0), ORDERS) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert world.verify(producer, ORDERS, transactional_id="y") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# -- the end of a transaction -------------------------------------------------------------------------------------


def test_a_commit_is_decided_its_markers_are_written_and_it_completes() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer, [ORDERS, TRADES])
    assert world.commit(producer) == (NONE, 1000, 1)
    (markers,) = world.markers
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (1000, 1, True)
    assert (markers.coordinator_epoch, markers.transaction_version) == (COORDINATOR_EPOCH, 2)
    assert set(markers.partitions) == {ORDERS, TRADES}
    assert (world.state.state, world.state.partitions) == (TransactionState.COMPLETE_COMMIT, ())


def test_a_client_of_version_4_keeps_its_epoch() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer, version=0)
    assert world.commit(producer, version=1)[0] == NONE
    assert (world.markers[0].producer_epoch, world.markers[0].transaction_version) == (0, 0)
    assert world.commit(producer, version=1)[0] == NONE
    assert world.abort(producer, version=1)[0] == INVALID_STATE
    assert world.add(producer, version=0) == NONE


def test_both_kinds_of_clients_take_turns_under_one_id() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer, version=5)
    bumped = world.commit(producer)[1:]
    assert world.add(bumped, version=3) == NONE
    assert world.commit(bumped, version=4)[0] == NONE
    assert world.add(bumped, version=5) == NONE
    assert world.abort(bumped) == (NONE, 1000, 2)


EMPTY, COMMITTED, ABORTED = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


@pytest.mark.parametrize(
    ("state", "is_commit", "epoch", "expected"),
    [
        (EMPTY, False, 5, (NONE, 7, 6)),
        (EMPTY, False, 4, (FENCED, -1, -1)),
        (EMPTY, True, 5, (INVALID_STATE, -1, -1)),
        (EMPTY, True, 4, (FENCED, -1, -1)),
        (ABORTED, False, 5, (NONE, 7, 6)),
        (ABORTED, False, 4, (NONE, 7, 5)),
        (ABORTED, True, 5, (INVALID_STATE, -1, -1)),
        (ABORTED, True, 4, (INVALID_STATE, -1, -1)),
        (COMMITTED, False, 5, (NONE, 7, 6)),
        (COMMITTED, False, 4, (INVALID_STATE, -1, -1)),
        (COMMITTED, True, 5, (INVALID_STATE, -1, -1)),
        (COMMITTED, True, 4, (NONE, 7, 5)),
    ],
)
def test_end_txn_5_without_a_transaction(
    state: TransactionState, is_commit: bool, epoch: int, expected: tuple[ErrorCode, int, int]
) -> None:
    world = TransactionWorld()
    put(world, state=state, producer_epoch=5, client_transaction_version=2)
    assert world.end((7, epoch), is_commit=is_commit) == expected


def test_the_last_epoch_ends_with_a_new_producer_id_and_a_retry_gets_it_again() -> None:
    world = TransactionWorld()
    put_empty(world, producer_epoch=32766)
    world.add((7, 32766))
    assert world.commit((7, 32766)) == (NONE, 1000, 0)
    assert (world.markers[0].producer_id, world.markers[0].producer_epoch) == (7, 32767)
    assert world.commit((7, 32766)) == (NONE, 1000, 0)
    assert world.abort((7, 32766))[0] == INVALID_STATE
    assert world.add((1000, 0)) == NONE


def test_while_markers_are_written_requests_get_a_retriable_error() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.held = {ORDERS}
    world.add(producer, [ORDERS, TRADES])
    assert world.commit(producer) == (NONE, 1000, 1)
    assert world.state.state is TransactionState.PREPARE_COMMIT
    assert world.init().error_code == CONCURRENT
    assert world.commit(producer)[0] == CONCURRENT
    assert world.abort((1000, 1))[0] == CONCURRENT
    assert world.add((1000, 1)) == CONCURRENT
    assert world.verify((1000, 1), ORDERS) == [CONCURRENT]
    assert [topic.topic for topic in world.shard.describe(X).topics] == ["orders"]
    world.release()
    assert world.state.state is TransactionState.COMPLETE_COMMIT


def test_a_response_about_markers_of_an_earlier_transaction_changes_nothing() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.held = {ORDERS}
    world.add(producer)
    world.abort(producer)
    (stale,) = world.outstanding
    world.release()
    world.held = {ORDERS}
    world.add((1000, 1))
    world.abort((1000, 1))
    assert not world.shard.markers_written(stale, [ORDERS], world.now_ms).records
    assert world.state.state is TransactionState.PREPARE_ABORT


def test_the_end_is_decided_again_if_it_could_not_be_appended() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.held = {ORDERS}
    world.add(producer)
    world.abort(producer)
    (markers,) = world.outstanding
    lost = world.shard.markers_written(markers, [ORDERS], world.now_ms)
    again = world.shard.markers_written(markers, (), world.now_ms)
    assert (again.response, again.records, again.effects, again.is_atomic) == (
        lost.response,
        lost.records,
        lost.effects,
        lost.is_atomic,
    )
    assert len(lost.records) == 1


# -- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 5])
def test_a_transaction_that_takes_too_long_is_aborted_with_a_bump(version: int) -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer, version=version)
    world.now_ms += TIMEOUT_MS
    assert world.time_out() == []
    world.now_ms += 1
    assert world.time_out() == [X]
    assert (world.state.state, world.state.producer_epoch) == (TransactionState.COMPLETE_ABORT, 1)
    assert world.commit(producer)[0] == INVALID_STATE
    assert world.abort(producer) == (NONE, 1000, 1)
    assert world.started(producer=producer) == (1000, 1)


def test_a_transaction_of_two_phase_commit_does_not_time_out() -> None:
    world = TransactionWorld()
    put(world, state=TransactionState.ONGOING, timeout_ms=0x7FFFFFFF, start_ms=1)
    world.now_ms += WEEK_MS
    assert world.time_out() == []


@pytest.mark.parametrize("state", TransactionState)
def test_ids_that_rest_expire(state: TransactionState) -> None:
    world = TransactionWorld()
    if state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        world.held = {ORDERS}
    put(world, state=state, partitions=() if state is TransactionState.EMPTY else (ORDERS,))
    world.now_ms += WEEK_MS - 1
    assert world.expire() == []
    world.now_ms += 1
    assert world.expire() == ([X] if state in (EMPTY, COMMITTED, ABORTED) else [])
    world.reload()
    assert (X in world.shard.transactions) == (state not in (EMPTY, COMMITTED, ABORTED))


# -- shown --------------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_not_found() -> None:
    assert TransactionWorld().shard.describe(X).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({}, ["empty", "old", "young"]),
        ({"state_filters": ["Ongoing"]}, ["old", "young"]),
        ({"state_filters": ["Nonsense"]}, []),
        ({"producer_id_filters": [1000]}, ["old"]),
        ({"duration_filter": 100}, ["empty", "old"]),
        ({"duration_filter": 99}, ["empty", "old", "young"]),
        ({"transactional_id_pattern": "o.*"}, ["old"]),
        ({"transactional_id_pattern": "o"}, []),
        ({"transactional_id_pattern": ""}, ["empty", "old", "young"]),
    ],
)
def test_a_transaction_is_listed_if_it_passes_all_filters(request_fields: dict[str, Any], expected: list[str]) -> None:
    world = TransactionWorld()
    world.add(world.started("old"), transactional_id="old")
    world.now_ms += 100
    world.add(world.started("young"), transactional_id="young")
    world.started("empty")
    world.now_ms += 100
    filters = TransactionFilters.of(ListTransactionsRequest(**request_fields))
    listed = world.shard.list_transactions(filters, world.now_ms)
    assert sorted(each.transactional_id for each in listed if each is not None) == expected


def test_unknown_states_are_returned_and_bad_patterns_refused() -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "Nonsense"])
    assert TransactionFilters.of(request).unknown_states == ["Nonsense", "ongoing"]
    with pytest.raises(Exception, match="not a valid regular expression") as raised:
        TransactionFilters.of(ListTransactionsRequest(transactional_id_pattern="("))
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


# -- any history ----------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["init", "init again", "add", "add offsets", "commit", "abort", "time out", "reload", "release"]
        ),
        st.sampled_from([-1, 0, 0, 0, 0, 1]),
        st.sampled_from([1, 4, 5]),
        st.booleans(),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0, 1, 2]), st.sampled_from([0, 5, 32763, 32765, 32766]))
def test_any_history_leaves_one_story_and_every_client_goes_on(
    steps: list[tuple[str, int, int, bool]], transaction_version: int, producer_epoch: int
) -> None:
    world = TransactionWorld(transaction_version)
    put_empty(world, producer_epoch=producer_epoch)
    for kind, epoch_delta, version, is_held in steps:
        world.now_ms += 10
        world.held = {ORDERS} if is_held else set()
        take_step(world, kind, (world.state.producer_id, world.state.producer_epoch + epoch_delta), version)
        assert 0 <= world.state.producer_epoch <= 32767
    before = world.state
    world.reload()
    assert shown(world.state) == shown(before) or before.state.is_prepared
    world.release()
    response = world.init()
    if response.error_code == CONCURRENT:
        response = world.init()
    assert response.error_code == NONE
    assert world.add((response.producer_id, response.producer_epoch)) == NONE
    assert world.commit((response.producer_id, response.producer_epoch))[0] == NONE
    assert_markers_follow_decisions(world)


def take_step(world: TransactionWorld, kind: str, producer: tuple[int, int], version: int) -> None:
    if kind == "init":
        world.init()
    elif kind == "init again" and producer[1] >= 0:
        world.init(producer=producer)
    elif kind == "add":
        world.add(producer, [ORDERS, TRADES], version=version)
    elif kind == "add offsets":
        world.add_offsets(producer, version=4)
    elif kind in ("commit", "abort"):
        world.end(producer, is_commit=kind == "commit", version=version)
    elif kind == "time out":
        world.now_ms += TIMEOUT_MS
        world.time_out()
    elif kind == "reload":
        world.reload()
    elif kind == "release":
        world.release()


def assert_markers_follow_decisions(world: TransactionWorld) -> None:
    """No two markers of one producer epoch disagree, and epochs of one producer id never fall."""
    decided: dict[tuple[int, int], set[bool]] = {}
    highest: dict[int, int] = {}
    for markers in world.markers:
        if markers.transaction_version == 2:
            decided.setdefault((markers.producer_id, markers.producer_epoch), set()).add(markers.is_commit)
        assert markers.producer_epoch >= highest.get(markers.producer_id, 0)
        highest[markers.producer_id] = markers.producer_epoch
    assert all(len(results) == 1 for results in decided.values())


def shown(metadata: TransactionMetadata) -> list[Any]:
    return [
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.state,
        set(metadata.partitions),
        metadata.start_ms,
        metadata.timeout_ms,
    ]


def put(world: TransactionWorld, **fields: Any) -> None:
    values: dict[str, Any] = {
        "producer_epoch": 5,
        "timeout_ms": TIMEOUT_MS,
        "last_update_ms": world.now_ms,
        "previous_producer_id": 7,
        "start_ms": -1 if fields["state"] is EMPTY else world.now_ms,
    }
    world.put(TransactionMetadata(7, **(values | fields)))


def put_empty(world: TransactionWorld, *, producer_epoch: int) -> None:
    put(world, state=EMPTY, producer_epoch=producer_epoch)


def test_a_decision_leaves_the_shard_as_it_was() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.add(producer)
    before = dict(world.shard.transactions)
    world.shard.init_producer_id(InitProducerIdRequest(X, transaction_timeout_ms=TIMEOUT_MS), 5, world.now_ms)
    assert world.shard.transactions == before
    assert world.shard.timed_out(world.shard.ongoing(), world.now_ms + TIMEOUT_MS + 1) == [X]


def test_a_transaction_takes_part_in_a_partition_until_its_marker_is_there() -> None:
    world = TransactionWorld()
    producer = world.started()
    world.held = {ORDERS}
    assert not world.shard.takes_part(producer[0], ORDERS)
    world.add(producer, [ORDERS, TRADES])
    assert world.shard.takes_part(producer[0], TRADES)
    assert not world.shard.takes_part(producer[0] + 1, TRADES)
    world.commit(producer)
    assert (world.shard.takes_part(1000, ORDERS), world.shard.takes_part(1000, TRADES)) == (True, False)
    world.release()
    assert not world.shard.takes_part(1000, ORDERS)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_who_was_fenced_by_a_client_that_keeps_its_epoch_does_not_get_that_epoch(is_commit: bool) -> None:
    world = TransactionWorld()
    fenced = world.started()
    newer = world.started()
    assert newer[1] == fenced[1] + 1
    world.add(newer, version=0)
    assert world.end(newer, is_commit=is_commit, version=1)[0] == ErrorCode.NONE
    assert world.end(fenced, is_commit=is_commit) == (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert world.end(newer, is_commit=is_commit)[0] == (ErrorCode.INVALID_TXN_STATE if is_commit else ErrorCode.NONE)
