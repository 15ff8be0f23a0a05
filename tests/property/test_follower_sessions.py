"""What a follower's session names to its leader, under any order of changes, responses and failures."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.protocol.messages.fetch_request import FetchPartition
from kafkapy.runtime.followers import session as follower_session
from kafkapy.runtime.followers.session import FollowerSession, PartitionKey, SessionRequest
from tests.support.interpreter import needs_interpreter

pytestmark = needs_interpreter("it sets a constant")
TOPIC_ID = b"t" * 16
ADDED = 3
PARTITIONS = st.integers(0, 11)
STEPS = st.one_of(
    st.tuples(st.just("ask"), PARTITIONS, st.integers(0, 3)),
    st.tuples(st.just("drop"), PARTITIONS, st.just(0)),
    st.tuples(st.just("answer"), st.just(0), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
)


class Leader:
    """What the leader knows of a session: the positions by partition."""

    def __init__(self) -> None:
        self.positions: dict[PartitionKey, int] = {}

    def take(self, request: SessionRequest) -> int:
        """Apply a request; return how many partitions it adds."""
        if request.is_full:
            self.positions = {}
        for topic in request.forgotten:
            for number in topic.partitions:
                del self.positions[topic.topic_id, number]
        before = len(self.positions)
        named = [((topic.topic_id, each.partition), each) for topic in request.topics for each in topic.partitions]
        assert len(dict(named)) == len(named), "each partition is named once"
        for key, position in named:
            self.positions[key] = position.fetch_offset
        return len(self.positions) - before


def send_request(session: FollowerSession, number: int, offset: int) -> None:
    session.request((TOPIC_ID, number), FetchPartition(partition=number, fetch_offset=offset))


@given(st.lists(STEPS, max_size=60))
def test_the_leader_learns_every_position_whatever_failed_before(steps: list[tuple[str, int, int]]) -> None:
    with patch.object(follower_session, "ADDED_PER_REQUEST", ADDED):
        session, leader, wanted = FollowerSession(), Leader(), dict[PartitionKey, int]()
        for step, number, offset in steps:
            key = (TOPIC_ID, number)
            if step == "ask":
                send_request(session, number, offset)
                wanted[key] = offset
            elif step == "drop":
                session.drop(key)
                wanted.pop(key, None)
            elif session.has_request:
                request = session.next_request()
                assert leader.take(request) <= ADDED
                if step == "answer":
                    session.on_response(request, 42)
                else:
                    session.record_failure()
        for _ in range(2 * 12 // ADDED + 1):
            if not session.has_request:
                break
            request = session.next_request()
            leader.take(request)
            session.on_response(request, 42)
        else:
            assert not request.has_more, "it ends"
        assert leader.positions == wanted or not wanted


@given(st.integers(1, 40), st.lists(st.booleans(), min_size=30, max_size=30))
def test_each_partition_is_named_in_turn_however_few_requests_a_session_lasts(count: int, fails: list[bool]) -> None:
    with patch.object(follower_session, "ADDED_PER_REQUEST", ADDED):
        session = FollowerSession()
        for number in range(count):
            send_request(session, number, 0)
        unnamed = set(range(count))
        for number, is_failure in enumerate(fails):
            request = session.next_request()
            named = {each.partition for topic in request.topics for each in topic.partitions}
            assert named & unnamed or not unnamed, f"request {number} names only what was named before"
            unnamed -= named
            if is_failure:
                session.record_failure()
            else:
                session.on_response(request, 42)
        assert not unnamed
