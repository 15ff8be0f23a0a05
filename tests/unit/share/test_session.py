"""Share sessions: which requests they take, what responses leave out, and how they end."""

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share import session as module
from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.session import (
    FINAL_EPOCH,
    EndedSession,
    SessionContext,
    SessionKey,
    SessionRequest,
    ShareSessionCache,
    next_epoch,
)
from kafkapy.types import INT32_MAX
from tests.support.interpreter import needs_interpreter

KEY, OTHER = SessionKey("g", "m1"), SessionKey("g", "m2")
P0, P1, P2 = (TopicIdPartition(bytes(16), partition) for partition in range(3))
CONNECTION, ANOTHER = object(), object()


def opened(cache: ShareSessionCache, key: SessionKey = KEY, connection: object = CONNECTION) -> SessionContext:
    return cache.open(SessionRequest(key, 0, [P0, P1]), connection)


def following(
    cache: ShareSessionCache, epoch: int, *named: TopicIdPartition, forgotten: TopicIdPartition | None = None
) -> SessionContext:
    return cache.open(SessionRequest(KEY, epoch, named, [forgotten] if forgotten else []), CONNECTION)


class TestRequests:
    def test_the_first_one_names_what_is_read(self) -> None:
        context = opened(ShareSessionCache(10))
        assert (context.error_code, context.partitions, context.session) == (ErrorCode.NONE, [P0, P1], None)

    def test_later_ones_name_what_changes(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert following(cache, 1).partitions == [P0, P1]
        assert following(cache, 2, P2, forgotten=P0).partitions == [P1, P2]
        assert cache.partition_count == 2

    @pytest.mark.parametrize("epoch", [2, 5])
    def test_at_another_epoch(self, epoch: int) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert following(cache, epoch).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert cache.acknowledge(KEY, epoch) == ErrorCode.INVALID_SHARE_SESSION_EPOCH

    def test_fetches_and_acknowledgements_count_together(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert cache.acknowledge(KEY, 1) == ErrorCode.NONE
        assert following(cache, 2).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("epoch", [1, FINAL_EPOCH])
    def test_without_a_session(self, epoch: int) -> None:
        cache = ShareSessionCache(10)
        assert following(cache, epoch).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert cache.acknowledge(KEY, epoch) == ErrorCode.SHARE_SESSION_NOT_FOUND

    def test_the_first_one_acknowledges_nothing(self) -> None:
        cache = ShareSessionCache(10)
        request = SessionRequest(KEY, 0, [P0], has_acknowledgements=True)
        assert cache.open(request, CONNECTION).error_code == ErrorCode.INVALID_REQUEST
        assert cache.acknowledge(KEY, 0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH

    def test_overtaken_by_another(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        waiting = following(cache, 1)
        assert not waiting.is_overtaken
        following(cache, 2)
        assert waiting.is_overtaken

    def test_the_last_one_reads_nothing_whatever_it_names(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        for named in ([], [P0, P1], [P2]):
            context = cache.open(SessionRequest(KEY, FINAL_EPOCH, named), CONNECTION)
            assert (context.error_code, context.partitions) == (ErrorCode.NONE, [])
        assert cache.acknowledge(KEY, FINAL_EPOCH) == ErrorCode.NONE
        assert len(cache) == 1, "its handler ends it, once it is answered"

    def test_a_first_one_of_a_member_with_a_session_begins_anew(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert following(cache, 1, P2).partitions == [P0, P1, P2]
        assert opened(cache).partitions == [P0, P1]
        assert (len(cache), cache.partition_count) == (1, 2)
        assert following(cache, 1).partitions == [P0, P1]

    def test_a_session_that_has_forgotten_all_goes_on(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert following(cache, 1, forgotten=P0).partitions == [P1]
        assert following(cache, 2, forgotten=P1).partitions == []
        assert following(cache, 3).partitions == []
        assert following(cache, 4, P2).partitions == [P2]
        assert following(cache, 5, forgotten=P2).partitions == []
        assert cache.end(KEY) == EndedSession(KEY, [])

    def test_each_session_has_its_own_partitions(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        cache.open(SessionRequest(OTHER, 0, [P2]), ANOTHER)
        following(cache, 1, P2)
        cache.open(SessionRequest(OTHER, 1, [P0], [P2]), ANOTHER)
        assert cache.members_of("g") == {P0: ["m1", "m2"], P1: ["m1"], P2: ["m1"]}
        assert cache.members_of("unknown") == {}
        cache.end(KEY)
        assert cache.members_of("g") == {P0: ["m2"]}

    def test_epochs_begin_again_at_one(self) -> None:
        assert [next_epoch(epoch) for epoch in (0, 7, INT32_MAX, FINAL_EPOCH)] == [1, 8, 1, FINAL_EPOCH]


class TestLimits:
    def test_of_sessions(self) -> None:
        cache = ShareSessionCache(1)
        opened(cache)
        assert opened(cache, OTHER).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert opened(cache).error_code == ErrorCode.NONE, "one's own is replaced"
        cache.end(KEY)
        assert opened(cache, OTHER).error_code == ErrorCode.NONE

    def test_counts_follow_sessions_and_what_they_name(self) -> None:
        cache = ShareSessionCache(2)
        four = [TopicIdPartition(bytes(16), number) for number in range(4)]
        opened(cache)
        cache.open(SessionRequest(OTHER, 0, four), ANOTHER)
        third = cache.open(SessionRequest(SessionKey("g", "m3"), 0, four), object())
        assert third.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert (len(cache), cache.partition_count) == (2, 6)
        cache.close_connection(CONNECTION)
        assert (len(cache), cache.partition_count, cache.closed_count) == (1, 4, 1)
        cache.open(SessionRequest(OTHER, 1, [], four[:1]), ANOTHER)
        assert (len(cache), cache.partition_count, cache.closed_count) == (1, 3, 1)
        opened(cache)
        cache.end_all()
        assert (len(cache), cache.partition_count, cache.closed_count) == (0, 0, 1)

    @needs_interpreter("it sets a constant")
    def test_of_partitions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_PARTITIONS", 3)
        cache = ShareSessionCache(10)
        opened(cache)
        assert opened(cache, OTHER).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert following(cache, 1, P2).error_code == ErrorCode.NONE
        more = following(cache, 2, TopicIdPartition(bytes(16), 9))
        assert more.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert following(cache, 2).error_code == ErrorCode.NONE, "a refused request has changed nothing"

    @needs_interpreter("it sets a constant")
    def test_a_session_that_could_not_be_replaced_goes_on_and_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else its group would have no session, and keep its share partitions for ever: no session ends any more."""
        monkeypatch.setattr(module, "MAX_SESSION_PARTITIONS", 2)
        cache = ShareSessionCache(10)
        opened(cache)
        replacing = cache.open(SessionRequest(KEY, 0, [P0, P1, P2]), CONNECTION)
        assert replacing.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert following(cache, 1).partitions == [P0, P1]
        assert cache.close_connection(CONNECTION) == [EndedSession(KEY, [P0, P1])]


class TestResponses:
    def test_leave_out_partitions_without_news(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        session = following(cache, 1, P2).session
        assert session is not None
        assert not session.has_changes(P0, has_records=False, error_code=0)
        assert session.has_changes(P2, has_records=False, error_code=0), "it is new in the session"
        assert not session.has_changes(P2, has_records=False, error_code=0)

    def test_partition_with_records_goes_last(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        session = following(cache, 1).session
        assert session is not None
        assert session.has_changes(P0, has_records=True, error_code=0)
        assert following(cache, 2).partitions == [P1, P0]

    def test_after_an_error_once_more(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        session = following(cache, 1).session
        assert session is not None
        responses = [session.has_changes(P0, has_records=False, error_code=code) for code in (6, 0, 0)]
        assert responses == [True, True, False]


class TestEnds:
    def test_by_the_member(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        assert following(cache, FINAL_EPOCH).partitions == []
        assert cache.end(KEY) == EndedSession(KEY, [P0, P1])
        assert cache.end(KEY) is None
        assert (len(cache), cache.partition_count) == (0, 0)
        assert cache.close_connection(CONNECTION) == [], "it began no other session"
        assert cache.closed_count == 0

    def test_with_the_connection(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        opened(cache, OTHER)
        opened(cache, SessionKey("other", "m"), ANOTHER)
        ended = cache.close_connection(CONNECTION)
        assert [each.key for each in ended] == [KEY, OTHER]
        assert not cache.has_group(KEY.group_id)
        assert cache.close_connection(CONNECTION) == []
        assert len(cache) == 1

    def test_begun_again_elsewhere_the_old_connection_ends_nothing(self) -> None:
        cache = ShareSessionCache(10)
        opened(cache)
        opened(cache, KEY, ANOTHER)
        assert cache.close_connection(CONNECTION) == []
        assert cache.get(KEY) is not None
