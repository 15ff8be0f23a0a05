import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition
from kafkapy.runtime.followers import session as follower_session
from kafkapy.runtime.followers.session import FollowerSession, SessionRequest
from tests.support.interpreter import needs_interpreter

A, B = b"a" * 16, b"b" * 16


def requester(session: FollowerSession, *offsets: tuple[bytes, int, int]) -> FollowerSession:
    for topic_id, partition, offset in offsets:
        session.request((topic_id, partition), FetchPartition(partition=partition, fetch_offset=offset))
    return session


def printed(request: SessionRequest) -> tuple[object, ...]:
    named = [
        (topic.topic_id, each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions
    ]
    forgotten = [(topic.topic_id, partition) for topic in request.forgotten for partition in topic.partitions]
    return request.session_id, request.session_epoch, named, forgotten


def test_the_first_request_names_all_and_the_next_what_changed() -> None:
    session = requester(FollowerSession(), (A, 0, 5), (B, 0, 7), (A, 1, 6))
    request = session.next_request()
    assert printed(request) == (0, 0, [(A, 0, 5), (A, 1, 6), (B, 0, 7)], [])
    session.on_response(request, 42)
    request = requester(session, (B, 0, 9)).next_request()
    assert printed(request) == (42, 1, [(B, 0, 9)], [])
    session.on_response(request, 42)
    assert printed(session.next_request()) == (42, 2, [], [])


def test_a_partition_that_is_dropped_is_forgotten_once_unless_it_is_requested_again() -> None:
    session = requester(FollowerSession(), (A, 0, 5), (A, 1, 5), (A, 2, 5))
    session.on_response(session.next_request(), 42)
    session.drop((A, 0))
    session.drop((A, 1))
    session.drop((A, 9))
    request = requester(session, (A, 1, 8)).next_request()
    assert printed(request) == (42, 1, [(A, 1, 8)], [(A, 0)])
    session.on_response(request, 42)
    session.drop((A, 1))
    session.drop((A, 2))
    assert session.has_request, "the leader is to forget them"
    session.on_response(session.next_request(), 42)
    assert not session.has_request


def test_after_a_failure_all_is_named_again_and_the_old_session_closed() -> None:
    session = requester(FollowerSession(), (A, 0, 5), (A, 1, 5))
    session.on_response(session.next_request(), 42)
    requester(session, (A, 0, 6)).next_request()
    session.record_failure()
    assert printed(session.next_request()) == (42, 0, [(A, 0, 6), (A, 1, 5)], [])


def test_a_session_that_the_leader_does_not_know_is_not_named_again() -> None:
    session = requester(FollowerSession(), (A, 0, 5))
    session.on_response(session.next_request(), 42)
    session.next_request()
    session.record_failure(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert printed(session.next_request()) == (0, 0, [(A, 0, 5)], [])


def test_without_room_for_a_session_every_request_names_all() -> None:
    session = requester(FollowerSession(), (A, 0, 5))
    session.on_response(session.next_request(), 0)
    assert printed(session.next_request()) == (0, 0, [(A, 0, 5)], [])
    session.drop((A, 0))
    assert not session.has_request


def test_a_session_that_the_leader_ends_is_followed_by_a_full_request() -> None:
    session = requester(FollowerSession(), (A, 0, 5))
    session.on_response(session.next_request(), 42)
    session.on_response(session.next_request(), 0)
    assert printed(session.next_request()) == (0, 0, [(A, 0, 5)], [])


@needs_interpreter("it sets a constant")
def test_a_large_session_is_made_by_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 2)
    session = requester(FollowerSession(), *((A, number, 5) for number in range(5)))
    first = session.next_request()
    assert printed(first) == (0, 0, [(A, 0, 5), (A, 1, 5)], [])
    assert first.has_more
    assert session.sent((A, 2)) is None
    session.on_response(first, 42)
    session.drop((A, 1))
    session.drop((A, 2))
    second = requester(session, (A, 0, 6)).next_request()
    assert printed(second) == (42, 1, [(A, 0, 6), (A, 3, 5), (A, 4, 5)], [(A, 1)]), "2 was never named"
    assert not second.has_more
    session.on_response(second, 42)
    assert printed(session.next_request()) == (42, 2, [], [])


@needs_interpreter("it sets a constant")
def test_new_positions_are_named_at_once_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 1)
    session = requester(FollowerSession(), (A, 0, 5), (A, 1, 5))
    session.on_response(session.next_request(), 42)
    session.on_response(session.next_request(), 42)
    requester(session, (B, 0, 7), (A, 0, 6), (A, 1, 6), (B, 1, 7))
    request = session.next_request()
    assert printed(request) == (42, 2, [(A, 0, 6), (A, 1, 6), (B, 0, 7)], [])
    assert request.has_more
    session.drop((B, 1))
    session.on_response(request, 42)
    assert printed(session.next_request()) == (42, 3, [], []), "the leader never heard of B-1"


def test_a_partition_that_is_added_again_before_the_leader_forgot_it_has_its_new_position() -> None:
    session = requester(FollowerSession(), (A, 0, 5), (A, 1, 5))
    session.on_response(session.next_request(), 42)
    session.drop((A, 0))
    request = session.next_request()
    requester(session, (A, 0, 3))
    session.on_response(request, 42)
    assert printed(session.next_request()) == (42, 2, [(A, 0, 3)], [])


@needs_interpreter("it sets a constant")
def test_without_room_for_a_session_a_request_names_all_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 2)
    session = requester(FollowerSession(), *((A, number, 5) for number in range(5)))
    session.on_response(session.next_request(), 0)
    request = session.next_request()
    assert printed(request) == (0, 0, [(A, number, 5) for number in (2, 3, 4, 0, 1)], [])
    assert not request.has_more
    session.on_response(request, 42)
    assert printed(session.next_request()) == (42, 1, [], [])


@needs_interpreter("it sets a constant")
def test_after_a_failure_those_come_first_that_were_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_session, "ADDED_PER_REQUEST", 2)
    session = requester(FollowerSession(), *((A, number, 5) for number in range(5)))
    session.next_request()
    session.record_failure()
    request = session.next_request()
    assert printed(request) == (0, 0, [(A, 2, 5), (A, 3, 5)], [])
    session.on_response(request, 42)
    session.drop((A, 0))
    requester(session, (A, 2, 6))
    request = session.next_request()
    assert printed(request) == (42, 1, [(A, 2, 6), (A, 4, 5), (A, 0, 5)][:2], [])
