"""The checker of histories finds each anomaly in a history that has it, and none in one that has not."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.support.history import (
    NOT_ACKNOWLEDGED,
    End,
    Event,
    Finish,
    Limit,
    Observe,
    Outcome,
    Poll,
    SendOffset,
    Write,
    from_lines,
    to_lines,
)
from tests.support.history_checker import Kind, find_anomalies

LEFT, RIGHT = "left-0", "right-0"
GROUP = "group left-0"


def write(value: str, partition: str, offset: int, at: float = 1.0) -> Write:
    """A record of the transaction that the value's first word names, of the producer that its first letter does."""
    transaction = value.split()[0]
    return Write(transaction[0], transaction, partition, value, offset, at, at + 0.1)


def end(transaction: str, outcome: Outcome, at: float = 2.0) -> End:
    return End(transaction, outcome, at, at + 0.1)


def poll(consumer: str, partition: str, *records: tuple[int, str], at: float = 3.0, committed: bool = True) -> Poll:
    return Poll(consumer, committed, partition, records, at, at + 0.1)


def finish(partition: str, *records: tuple[int, str], lso: int = 9) -> Finish:
    return Finish(partition, records, lso, 9)


def seen(limit: Limit, name: str, value: int, at: float, took: float = 0.1) -> Observe:
    return Observe(limit, name, value, at, at + took)


def clean_history() -> list[Event]:
    """Two producers, a and b: a1 and b1 are committed, a2 is aborted, of a3 nobody knows.

    left:  0 a1, 1 b1, 2 the marker of a1, 3 that of b1, 4 a2, 5 its marker, 6 a3, 7 its marker, 8 another; right alike.
    """
    return [
        write("a1 l", LEFT, 0),
        write("a1 r", RIGHT, 0),
        SendOffset("a1", GROUP, 1),
        write("b1 l", LEFT, 1, at=1.5),
        end("a1", Outcome.COMMITTED),
        end("b1", Outcome.COMMITTED),
        write("a2 l", LEFT, 4, at=3.0),
        write("a2 r", RIGHT, NOT_ACKNOWLEDGED, at=3.0),
        SendOffset("a2", GROUP, 2),
        end("a2", Outcome.ABORTED, at=4.0),
        write("a3 l", LEFT, 6, at=5.0),
        write("a3 r", RIGHT, 6, at=5.0),
        SendOffset("a3", GROUP, 3),
        end("a3", Outcome.UNKNOWN, at=6.0),
        poll("along", LEFT, (0, "a1 l"), (1, "b1 l"), at=3.0),
        poll("along", LEFT, (6, "a3 l"), at=7.0),
        poll("dirty", LEFT, (0, "a1 l"), (1, "b1 l"), at=1.6, committed=False),
        poll("dirty", LEFT, (4, "a2 l"), at=3.5, committed=False),
        seen(Limit.LAST_STABLE_OFFSET, LEFT, 0, at=1.0, took=3.0),
        seen(Limit.LAST_STABLE_OFFSET, LEFT, 4, at=3.0),
        seen(Limit.LAST_STABLE_OFFSET, LEFT, 9, at=8.0),
        seen(Limit.COMMITTED_OFFSET, GROUP, 1, at=3.0),
        seen(Limit.COMMITTED_OFFSET, GROUP, 3, at=8.0),
        finish(LEFT, (0, "a1 l"), (1, "b1 l"), (6, "a3 l")),
        finish(RIGHT, (0, "a1 r"), (6, "a3 r")),
    ]


def without(events: Iterable[Event], *unwanted: Event) -> list[Event]:
    kept = [event for event in events if event not in unwanted]
    assert len(kept) + len(unwanted) == len(clean_history())
    return kept


def with_finish(*finishes: Finish) -> list[Event]:
    """The clean history with another last look at some partitions."""
    partitions = {each.partition for each in finishes}
    kept = [each for each in clean_history() if not (isinstance(each, Finish) and each.partition in partitions)]
    return [*kept, *finishes]


def kinds_in(events: Iterable[Event]) -> set[Kind]:
    return {anomaly.kind for anomaly in find_anomalies(events)}


def test_a_clean_history_has_no_anomaly() -> None:
    assert find_anomalies(clean_history()) == []


def test_nothing_is_wrong_if_the_transaction_of_unknown_outcome_was_aborted() -> None:
    history = without(
        clean_history(), poll("along", LEFT, (6, "a3 l"), at=7.0), seen(Limit.COMMITTED_OFFSET, GROUP, 3, at=8.0)
    )
    history = [each for each in history if not isinstance(each, Finish)]
    history += [finish(LEFT, (0, "a1 l"), (1, "b1 l")), finish(RIGHT, (0, "a1 r"))]
    assert find_anomalies(history) == []


def test_the_order_of_events_in_the_list_matters_for_writes_only() -> None:
    history = clean_history()
    writes = [each for each in history if isinstance(each, Write)]
    others = [each for each in history if not isinstance(each, Write)]
    assert find_anomalies([*reversed(others), *writes]) == []


def test_a_history_survives_its_lines() -> None:
    history = clean_history()
    assert list(from_lines(to_lines(history))) == history


def test_a_partition_that_nobody_looked_at_in_the_end_is_a_fault_of_the_test() -> None:
    with pytest.raises(AssertionError, match="right-0"):
        find_anomalies(each for each in clean_history() if not isinstance(each, Finish) or each.partition != RIGHT)


# -- a history for each anomaly -------------------------------------------------------------------------------------


def test_a_committed_record_that_is_not_there_is_lost() -> None:
    """All of its transaction is gone, so that it is not torn."""
    history = with_finish(finish(LEFT, (0, "a1 l"), (6, "a3 l")))
    history.remove(poll("along", LEFT, (0, "a1 l"), (1, "b1 l"), at=3.0))
    assert kinds_in(history) == {Kind.LOST_WRITE}


def test_a_record_that_was_read_and_is_gone_is_lost_whoever_knew_of_its_commit() -> None:
    """a3 was never acknowledged as committed, but a read_committed consumer had it."""
    history = with_finish(finish(LEFT, (0, "a1 l"), (1, "b1 l")), finish(RIGHT, (0, "a1 r")))
    history.remove(seen(Limit.COMMITTED_OFFSET, GROUP, 3, at=8.0))
    assert kinds_in(history) == {Kind.LOST_WRITE}


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    history = with_finish(finish(LEFT, (0, "a1 l"), (1, "b1 l"), (6, "a3 l"), (7, "a3 l")))
    assert Kind.DUPLICATE in kinds_in(history)


def test_an_offset_that_a_consumer_gets_twice_is_a_duplicate() -> None:
    history = [*clean_history(), poll("along", LEFT, (6, "a3 l"), at=7.5)]
    assert kinds_in(history) == {Kind.DUPLICATE}


def test_an_offset_with_two_values_is_inconsistent() -> None:
    """A read_uncommitted consumer had another record there."""
    history = [*clean_history(), poll("other", LEFT, (6, "a2 l"), at=5.5, committed=False)]
    assert kinds_in(history) == {Kind.INCONSISTENT_OFFSET}


def test_a_record_that_is_not_where_it_was_acknowledged_is_inconsistent() -> None:
    history = with_finish(finish(RIGHT, (1, "a1 r"), (6, "a3 r")))
    assert kinds_in(history) == {Kind.INCONSISTENT_OFFSET}


@pytest.mark.parametrize("value", ["nobody's", "a1 r"])
def test_a_value_that_nobody_sent_there_is_unsent(value: str) -> None:
    history = [*clean_history(), poll("other", LEFT, (8, value), at=9.0, committed=False)]
    assert kinds_in(history) == {Kind.UNSENT}


def test_a_record_of_an_aborted_transaction_is_an_aborted_read() -> None:
    """It is found on the way and in the end."""
    along = replace(poll("along", LEFT, (4, "a2 l"), at=5.0), consumer="other")
    assert kinds_in([*clean_history(), along]) >= {Kind.ABORTED_READ}
    history = with_finish(finish(LEFT, (0, "a1 l"), (1, "b1 l"), (4, "a2 l"), (6, "a3 l")))
    assert Kind.ABORTED_READ in kinds_in(history)


def test_a_transaction_whose_commit_was_not_requested_is_aborted() -> None:
    history = without(clean_history(), end("a2", Outcome.ABORTED, at=4.0))
    assert find_anomalies(history) == []
    assert Kind.ABORTED_READ in kinds_in([*history, poll("other", LEFT, (4, "a2 l"), at=3.5)])


def test_a_record_read_before_its_commit_was_requested_is_a_precommitted_read() -> None:
    early = poll("other", LEFT, (0, "a1 l"), at=1.7)
    assert kinds_in([*clean_history(), early]) == {Kind.PRECOMMITTED_READ}


def test_a_record_that_is_read_while_its_commit_is_under_way_is_none() -> None:
    early = poll("other", LEFT, (0, "a1 l"), at=1.95)
    assert find_anomalies([*clean_history(), early]) == []


def test_an_offset_of_an_aborted_transaction_is_an_aborted_read() -> None:
    """A later one stands in the end."""
    assert kinds_in([*clean_history(), seen(Limit.COMMITTED_OFFSET, GROUP, 2, at=5.0)]) == {Kind.ABORTED_READ}


def test_an_offset_committed_before_the_commit_was_requested_is_a_precommitted_read() -> None:
    early = seen(Limit.COMMITTED_OFFSET, GROUP, 1, at=1.5)
    assert kinds_in([*clean_history(), early]) == {Kind.PRECOMMITTED_READ}


def test_a_transaction_of_which_a_partition_has_nothing_is_torn() -> None:
    """Nobody knows its outcome, so that nothing is lost."""
    assert kinds_in(with_finish(finish(RIGHT, (0, "a1 r")))) == {Kind.TORN_TRANSACTION}


def test_a_transaction_whose_offset_alone_is_missing_is_torn() -> None:
    history = without(clean_history(), seen(Limit.COMMITTED_OFFSET, GROUP, 3, at=8.0))
    assert kinds_in(history) == {Kind.TORN_TRANSACTION}


def test_a_transaction_of_which_there_is_only_the_offset_is_torn() -> None:
    history = with_finish(finish(LEFT, (0, "a1 l"), (1, "b1 l")), finish(RIGHT, (0, "a1 r")))
    history.remove(poll("along", LEFT, (6, "a3 l"), at=7.0))
    assert kinds_in(history) == {Kind.TORN_TRANSACTION}


def test_a_producers_records_in_another_order_are_reordered() -> None:
    history = [replace(each, offset=NOT_ACKNOWLEDGED) if isinstance(each, Write) else each for each in clean_history()]
    history = [each for each in history if not isinstance(each, Poll | Finish)]
    history += [finish(LEFT, (0, "a3 l"), (1, "b1 l"), (6, "a1 l")), finish(RIGHT, (0, "a1 r"), (6, "a3 r"))]
    assert kinds_in(history) == {Kind.REORDERING}


def test_a_consumer_whose_offsets_go_back_is_reordered() -> None:
    back = [poll("other", LEFT, (6, "a3 l"), at=7.0), poll("other", LEFT, (0, "a1 l"), (1, "b1 l"), at=8.0)]
    assert kinds_in([*clean_history(), *back]) == {Kind.REORDERING}


def test_a_committed_record_that_a_consumer_passes_over_is_skipped() -> None:
    hasty = poll("other", LEFT, (0, "a1 l"), (6, "a3 l"), at=7.0)
    assert kinds_in([*clean_history(), hasty]) == {Kind.SKIPPED}


@pytest.mark.parametrize(
    ("limit", "name", "value"),
    [
        (Limit.LAST_STABLE_OFFSET, LEFT, 8),
        (Limit.COMMITTED_OFFSET, GROUP, 1),
        (Limit.HIGH_WATERMARK, LEFT, 8),
    ],
)
def test_a_limit_that_is_lower_than_before_went_back(limit: Limit, name: str, value: int) -> None:
    before = seen(Limit.HIGH_WATERMARK, LEFT, 9, at=8.0)
    between = seen(limit, name, value, at=9.0)
    after = seen(Limit.COMMITTED_OFFSET, GROUP, 3, at=10.0)
    assert kinds_in([*clean_history(), before, between, after]) == {Kind.WENT_BACK}


def test_responses_that_crossed_each_other_did_not_go_back() -> None:
    late = seen(Limit.LAST_STABLE_OFFSET, LEFT, 4, at=7.9, took=5.0)
    assert find_anomalies([*clean_history(), late]) == []


def test_a_transaction_that_is_open_when_all_is_over_hangs() -> None:
    history = with_finish(finish(LEFT, (0, "a1 l"), (1, "b1 l"), (6, "a3 l"), lso=8))
    assert kinds_in(history) == {Kind.HANGING}
