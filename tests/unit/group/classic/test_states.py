"""Every (state, event) pair of a classic group, and every pair of states."""

from collections.abc import Callable
from itertools import product

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.states import NEXT_STATES, ClassicState
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.leave_group_request import MemberIdentity
from tests.support.classic_groups import ClassicWorld

EMPTY, PREPARING = ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE, ClassicState.DEAD

LEGAL = {
    (EMPTY, PREPARING),
    (EMPTY, DEAD),
    (PREPARING, COMPLETING),
    (PREPARING, EMPTY),
    (PREPARING, DEAD),
    (COMPLETING, STABLE),
    (COMPLETING, PREPARING),
    (COMPLETING, DEAD),
    (STABLE, PREPARING),
    (STABLE, DEAD),
}


@pytest.mark.parametrize(("source", "target"), list(product(ClassicState, ClassicState)))
def test_a_state_leads_to_what_the_table_says_and_nowhere_else(source: ClassicState, target: ClassicState) -> None:
    world = world_in(EMPTY)
    group = world.group
    group.log.state = source
    assert (target in NEXT_STATES[source]) == ((source, target) in LEGAL)
    if (source, target) in LEGAL:
        group.log.transition_to(target)
        assert group.log.state is target
    else:
        with pytest.raises(AssertionError):
            group.log.transition_to(target)


class Known:
    """A group of two members in a state, and what they are called; generation 1 unless EMPTY."""

    def __init__(self, world: ClassicWorld, leader: str, follower: str) -> None:
        self.world = world
        self.leader = leader
        self.follower = follower
        self.group = world.group


def world_in(state: ClassicState) -> ClassicWorld:
    return known_in(state).world


def known_in(state: ClassicState) -> Known:
    world = ClassicWorld()
    leader, follower = world.stable(2)
    known = Known(world, leader, follower)
    if state is EMPTY:
        world.leave((leader, None), (follower, None))
    elif state is PREPARING:
        world.join(world.new_id())
    elif state is COMPLETING:
        world.join(leader)
        world.join(follower)
    elif state is DEAD:
        known.group.log.state = DEAD  # still in the map, as for a request that came with its deletion
    assert known.group.log.state is state
    return known


Event = Callable[[Known], int | None]


def _outcome(known: Known, token: int) -> int | None:
    """Return the code of a response, None where the request waits."""
    return None if known.world.is_waiting(token) else known.world.code(token)


def join_new(known: Known) -> int | None:
    return _outcome(known, known.world.join())


def join_leader(known: Known) -> int | None:
    return _outcome(known, known.world.join(known.leader))


def join_follower(known: Known) -> int | None:
    return _outcome(known, known.world.join(known.follower))


def join_follower_with_changes(known: Known) -> int | None:
    return _outcome(known, known.world.join(known.follower, protocols={"range": b"other topics"}))


def join_stranger(known: Known) -> int | None:
    return _outcome(known, known.world.join("stranger"))


def sync_follower(known: Known) -> int | None:
    return _outcome(known, known.world.sync(known.follower, known.group.log.generation))


def sync_leader(known: Known) -> int | None:
    return _outcome(known, known.world.sync(known.leader, known.group.log.generation, {known.follower: b"f"}))


def sync_old_generation(known: Known) -> int | None:
    return _outcome(known, known.world.sync(known.follower, known.group.log.generation - 1))


def heartbeat(known: Known) -> int | None:
    return known.world.heartbeat(known.follower, known.group.log.generation)


def heartbeat_old_generation(known: Known) -> int | None:
    return known.world.heartbeat(known.follower, known.group.log.generation - 1)


def leave(known: Known) -> int | None:
    try:
        decision = known.group.leave([MemberIdentity(known.follower)], known.world.now_ms)
    except ApiError as error:
        return error.code
    known.world.carry_out(decision)
    return int(decision.response.members[0].error_code)


def commit(known: Known) -> int | None:
    try:
        known.group.check_offset_commit(
            known.follower, None, known.group.log.generation, version=8, is_transactional=False
        )
    except ApiError as error:
        return error.code
    return 0


def session_ends(known: Known) -> int | None:
    """The follower is not heard of; the leader is."""
    member = known.group.log.members.find(known.follower)
    if member is not None:
        known.group.rebalance.schedule_session(member, known.world.now_ms)
    known.world.carry_out(known.group.on_time(known.world.now_ms))
    return None


E = ErrorCode
NONE, WAITS = 0, None
UNKNOWN, REBALANCE, UNAVAILABLE = E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE
ILLEGAL = E.ILLEGAL_GENERATION
REQUIRED = E.MEMBER_ID_REQUIRED

PAIRS: dict[Event, dict[ClassicState, tuple[int | None, ClassicState]]] = {
    join_new: {
        EMPTY: (REQUIRED, EMPTY),
        PREPARING: (REQUIRED, PREPARING),
        COMPLETING: (REQUIRED, COMPLETING),
        STABLE: (REQUIRED, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    join_leader: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (NONE, COMPLETING),
        STABLE: (WAITS, PREPARING),
        DEAD: (UNAVAILABLE, DEAD),
    },
    join_follower: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (NONE, COMPLETING),
        STABLE: (NONE, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    join_follower_with_changes: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (WAITS, PREPARING),
        STABLE: (WAITS, PREPARING),
        DEAD: (UNAVAILABLE, DEAD),
    },
    join_stranger: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    sync_follower: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (WAITS, COMPLETING),
        STABLE: (NONE, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    sync_leader: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (NONE, STABLE),
        STABLE: (NONE, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    sync_old_generation: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (ILLEGAL, PREPARING),
        COMPLETING: (ILLEGAL, COMPLETING),
        STABLE: (ILLEGAL, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    heartbeat: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (NONE, COMPLETING),
        STABLE: (NONE, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    heartbeat_old_generation: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (ILLEGAL, PREPARING),
        COMPLETING: (ILLEGAL, COMPLETING),
        STABLE: (ILLEGAL, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    leave: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (NONE, PREPARING),
        COMPLETING: (NONE, PREPARING),
        STABLE: (NONE, PREPARING),
        DEAD: (UNAVAILABLE, DEAD),
    },
    commit: {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (NONE, PREPARING),
        COMPLETING: (REBALANCE, COMPLETING),
        STABLE: (NONE, STABLE),
        DEAD: (UNAVAILABLE, DEAD),
    },
    session_ends: {
        EMPTY: (WAITS, EMPTY),
        PREPARING: (WAITS, PREPARING),
        COMPLETING: (WAITS, PREPARING),
        STABLE: (WAITS, PREPARING),
        DEAD: (WAITS, DEAD),
    },
}


@pytest.mark.parametrize(
    ("event", "state"),
    [(event, state) for event in PAIRS for state in ClassicState],
    ids=lambda x: getattr(x, "__name__", getattr(x, "name", None)),
)
def test_an_event_in_a_state_has_its_response_and_its_next_state(event: Event, state: ClassicState) -> None:
    known = known_in(state)
    expected_response, next_state = PAIRS[event][state]
    assert event(known) == expected_response
    assert known.group.log.state is next_state


@pytest.mark.parametrize("event", list(PAIRS))
def test_every_state_is_paired_with_every_event(event: Event) -> None:
    assert set(PAIRS[event]) == set(ClassicState)
