"""Fetch sessions (KIP-227), with requests and answers as they come, and no log."""

from functools import partial
from typing import Any

import pytest

from kafkapy.handlers.data.fetch_wire import forgotten_of, requested_partitions_of
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkapy.replication.fetch_session import (
    EVICTION_MS,
    MAX_CONSUMER_PARTITIONS,
    MAX_EPOCH,
    MAX_SESSION_PARTITIONS,
    NO_SESSION_ID,
    FetchContext,
    FetchSessionCache,
    next_epoch,
)
from kafkapy.replication.follower_watch import FollowerWatch, FollowerWatches
from kafkapy.replication.partition_read import PartitionRead
from kafkapy.types import OffsetAndEpoch

ORDERS, TRADES = b"orders".ljust(16), b"trades".ljust(16)


def cache(max_slots: int = 10) -> FetchSessionCache:
    numbers = iter(range(1, 10_000))
    return FetchSessionCache(max_slots, lambda: next(numbers))


def request(
    session_id: int, epoch: int, *partitions: int, topic_id: bytes = ORDERS, forget: tuple[int, ...] = ()
) -> FetchRequest:
    topics = [
        FetchTopic("", topic_id=topic_id, partitions=[FetchPartition(number, fetch_offset=0) for number in partitions])
    ]
    forgotten = [ForgottenTopic("", topic_id=topic_id, partitions=list(forget))] if forget else []
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=topics if partitions else [], forgotten_topics_data=forgotten
    )


def opened(
    sessions: FetchSessionCache,
    request: FetchRequest,
    *,
    now_ms: int,
    is_from_follower: bool = False,
    uses_topic_ids: bool = True,
) -> FetchContext:
    return sessions.open(
        request.session_id,
        request.session_epoch,
        requested_partitions_of(request),
        forgotten_of(request),
        uses_topic_ids=uses_topic_ids,
        now_ms=now_ms,
        new_watch=partial(FollowerWatch, FollowerWatches(), 2) if is_from_follower else None,
    )


def a_read(**fields: Any) -> PartitionRead:
    values = {"error_code": 0, "high_watermark": 10, "log_start_offset": -1, "records": b"", **fields}
    return PartitionRead(last_stable_offset=-1, **values)


def finish(context: FetchContext, now_ms: int = 0, **fields: Any) -> tuple[int, int, list[int]]:
    """Answer all partitions alike; return error, session id, and the partitions that the response holds."""
    responses = [(part, a_read(**fields)) for part in context.partitions]
    error, session_id, sent = context.finish(responses, now_ms)
    return error, session_id, [part.request.partition for part, _ in sent]


def open_session(sessions: FetchSessionCache, *partitions: int, now_ms: int = 0) -> int:
    context = opened(sessions, request(0, 0, *partitions), now_ms=now_ms)
    error, session_id, sent = finish(context, now_ms)
    assert (error, sent) == (0, list(partitions))
    return session_id


def test_epoch_zero_creates_a_session_and_answers_everything() -> None:
    sessions = cache()
    assert open_session(sessions, 0, 1) == 1
    assert (len(sessions), sessions.partition_count) == (1, 2)


def test_epoch_minus_one_creates_none_and_closes_the_one_it_names() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    context = opened(sessions, request(session_id, -1, 0), now_ms=0)
    assert finish(context) == (0, NO_SESSION_ID, [0])
    assert len(sessions) == 0


def test_only_partitions_with_news_are_answered() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0, 1)
    context = opened(sessions, request(session_id, 1), now_ms=0)
    assert finish(context) == (0, session_id, [])
    context = opened(sessions, request(session_id, 2), now_ms=0)
    assert finish(context, high_watermark=11) == (0, session_id, [0, 1])
    context = opened(sessions, request(session_id, 3), now_ms=0)
    assert finish(context, high_watermark=11, log_start_offset=4) == (0, session_id, [0, 1])


def test_a_partition_comes_back_after_its_error() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    for epoch, error_code, expected in ((1, 6, [0]), (2, 6, [0]), (3, 0, [0]), (4, 0, [])):
        context = opened(sessions, request(session_id, epoch), now_ms=0)
        assert finish(context, error_code=error_code)[2] == expected


def test_a_partition_whose_log_diverged_is_answered_again() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0, 1)
    diverged = opened(sessions, request(session_id, 1, 0), now_ms=0)
    responses = [
        (part, a_read(diverging=OffsetAndEpoch(3, 1) if index == 0 else None))
        for index, part in enumerate(diverged.partitions)
    ]
    diverged.finish(responses, 0)
    assert finish(opened(sessions, request(session_id, 2, 0), now_ms=0)) == (0, session_id, [0])
    assert finish(opened(sessions, request(session_id, 3), now_ms=0)) == (0, session_id, [])


@pytest.mark.parametrize(("epoch", "sent"), [(5, []), (6, [0])])
def test_a_follower_is_answered_again_in_a_new_leader_epoch(epoch: int, sent: list[int]) -> None:
    sessions = cache()

    def fetch(session_id: int, session_epoch: int, leader_epoch: int) -> tuple[int, int, list[int]]:
        requested = request(session_id, session_epoch, 0, 1)
        requested.topics[0].partitions[0].current_leader_epoch = leader_epoch
        return finish(opened(sessions, requested, now_ms=0, is_from_follower=True))

    _, session_id, _ = fetch(0, 0, 5)
    assert fetch(session_id, 1, epoch) == (0, session_id, sent)


def test_partitions_with_records_go_to_the_end_of_the_order() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0, 1, 2)
    context = opened(sessions, request(session_id, 1), now_ms=0)
    responses = [(part, a_read(records=b"x" if index == 0 else b"")) for index, part in enumerate(context.partitions)]
    context.finish(responses, 0)
    context = opened(sessions, request(session_id, 2), now_ms=0)
    assert [part.request.partition for part in context.partitions] == [1, 2, 0]


def test_a_request_adds_changes_and_forgets_partitions() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0, 1)
    changed = request(session_id, 1, 1, 2, forget=(0,))
    changed.topics[0].partitions[0].fetch_offset = 7
    context = opened(sessions, changed, now_ms=0)
    assert [(part.request.partition, part.request.fetch_offset) for part in context.partitions] == [(1, 7), (2, 0)]


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    context = opened(sessions, request(session_id, 1, forget=(0,)), now_ms=0)
    assert finish(context) == (0, NO_SESSION_ID, [])
    assert len(sessions) == 0


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_wrong_epoch_is_refused_and_the_session_stays(epoch: int) -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    context = opened(sessions, request(session_id, epoch), now_ms=0)
    assert context.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert not opened(sessions, request(session_id, 1), now_ms=0).error_code


def test_an_unknown_session_is_refused() -> None:
    context = opened(cache(), request(99, 1), now_ms=0)
    assert context.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_stays_with_names_or_with_ids() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    context = opened(sessions, request(session_id, 1), now_ms=0, uses_topic_ids=False)
    assert context.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_recreated_topic_is_another_partition_of_the_session() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    context = opened(sessions, request(session_id, 1, 0, topic_id=TRADES), now_ms=0)
    assert [part.topic_id for part in context.partitions] == [ORDERS, TRADES]


def test_a_response_for_an_epoch_that_has_passed_is_refused() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0)
    slow = opened(sessions, request(session_id, 1), now_ms=0)
    opened(sessions, request(session_id, 2), now_ms=0)
    assert finish(slow, high_watermark=11) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])


def test_a_throttled_response_opens_no_session_and_leaves_the_open_one_as_it_is() -> None:
    sessions = cache()
    assert opened(sessions, request(0, 0, 0), now_ms=0).finish_throttled() == (0, NO_SESSION_ID)
    assert len(sessions) == 0
    session_id = open_session(sessions, 0)
    slow = opened(sessions, request(session_id, 1), now_ms=0)
    assert slow.finish_throttled() == (0, session_id)
    assert finish(opened(sessions, request(session_id, 2), now_ms=0), high_watermark=11) == (0, session_id, [0])
    assert slow.finish_throttled() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)


def test_epochs_wrap_to_one() -> None:
    assert (next_epoch(1), next_epoch(MAX_EPOCH)) == (2, 1)


def test_a_full_cache_makes_no_session_while_all_are_young() -> None:
    sessions = cache(max_slots=1)
    open_session(sessions, 0)
    context = opened(sessions, request(0, 0, 0, 1), now_ms=EVICTION_MS)
    assert finish(context, EVICTION_MS) == (0, NO_SESSION_ID, [0, 1])


def test_the_session_unused_for_longest_is_evicted_once_it_is_stale() -> None:
    sessions = cache(max_slots=2)
    first, second = open_session(sessions, 0), open_session(sessions, 0)
    opened(sessions, request(first, 1), now_ms=10)
    assert open_session(sessions, 0, now_ms=EVICTION_MS + 1) == 3
    assert opened(sessions, request(second, 1), now_ms=0).error_code
    assert not opened(sessions, request(first, 2), now_ms=0).error_code
    assert sessions.eviction_count == 1


def test_an_old_smaller_session_gives_way_to_a_larger_one_only() -> None:
    now_ms = EVICTION_MS + 1
    sessions = cache(max_slots=1)
    old = open_session(sessions, 0, 1)
    opened(sessions, request(old, 1), now_ms=now_ms)
    assert open_session(sessions, 0, now_ms=now_ms) == NO_SESSION_ID
    assert open_session(sessions, 0, 1, 2, now_ms=now_ms) != NO_SESSION_ID
    assert len(sessions) == 1


def test_a_follower_evicts_any_consumer() -> None:
    sessions = cache(max_slots=1)
    open_session(sessions, 0, 1, 2)
    context = opened(sessions, request(0, 0, 0), is_from_follower=True, now_ms=0)
    assert finish(context)[1] != NO_SESSION_ID
    context = opened(sessions, request(0, 0, 0), now_ms=0)
    assert finish(context)[1] == NO_SESSION_ID


def test_a_partition_named_twice_counts_once_with_its_last_offset() -> None:
    requested = request(0, -1, 0, 0)
    requested.topics[0].partitions[1].fetch_offset = 9
    context = opened(cache(), requested, now_ms=0)
    assert [part.request.fetch_offset for part in context.partitions] == [9]


def test_a_consumers_session_that_would_hold_too_many_partitions_ends_with_all_of_them_answered() -> None:
    sessions = cache()
    session_id = open_session(sessions, *range(MAX_SESSION_PARTITIONS - 1))
    grown = opened(
        sessions, request(session_id, 1, *range(MAX_SESSION_PARTITIONS, MAX_SESSION_PARTITIONS + 2)), now_ms=0
    )
    assert len(grown.partitions) == MAX_SESSION_PARTITIONS + 1
    error, left, sent = finish(grown)
    assert (error, left, len(sent)) == (0, NO_SESSION_ID, MAX_SESSION_PARTITIONS + 1)
    assert (len(sessions), sessions.consumer_partition_count) == (0, 0)
    assert finish(opened(sessions, request(0, 0, *range(MAX_SESSION_PARTITIONS + 1)), now_ms=0))[1] == NO_SESSION_ID


def test_all_consumers_sessions_together_hold_a_bounded_number_of_partitions() -> None:
    sessions = cache(100)
    full = MAX_CONSUMER_PARTITIONS // MAX_SESSION_PARTITIONS
    for _ in range(full):
        open_session(sessions, *range(MAX_SESSION_PARTITIONS))
    assert finish(opened(sessions, request(0, 0, 1), now_ms=0))[1] == NO_SESSION_ID
    follower = opened(sessions, request(0, 0, 1), now_ms=0, is_from_follower=True)
    assert finish(follower)[1] != NO_SESSION_ID
    later = opened(sessions, request(0, 0, 1), now_ms=EVICTION_MS + 1)
    assert finish(later, EVICTION_MS + 1)[1] != NO_SESSION_ID, "one that nobody uses makes room"
    assert sessions.consumer_partition_count == (full - 1) * MAX_SESSION_PARTITIONS + 1


def test_offsets_of_a_sessions_own_partitions_need_no_room() -> None:
    sessions = cache(100)
    for _ in range(MAX_CONSUMER_PARTITIONS // MAX_SESSION_PARTITIONS):
        session_id = open_session(sessions, *range(MAX_SESSION_PARTITIONS))
    assert sessions.consumer_partition_count == MAX_CONSUMER_PARTITIONS
    for epoch in (1, 2):
        context = opened(sessions, request(session_id, epoch, 0, 1, 1), now_ms=0)
        assert finish(context)[:2] == (0, session_id)


def test_partitions_that_are_forgotten_make_room() -> None:
    sessions = cache()
    session_id = open_session(sessions, 0, 1, 2)
    finish(opened(sessions, request(session_id, 1, 3, forget=(0, 1)), now_ms=0))
    assert sessions.consumer_partition_count == 2
    opened(sessions, request(session_id, -1), now_ms=0)
    assert sessions.consumer_partition_count == 0
