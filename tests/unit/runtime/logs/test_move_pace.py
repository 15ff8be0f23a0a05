"""When a copy to another directory gives way to requests."""

from kafkapy.runtime.logs.log_dir_mover import IDLE_PASS_NS, TURN_NS, Pace

CHUNK_NS = TURN_NS // 4


def pauses(passes_ns: list[int]) -> list[bool]:
    """Return after which of these passes of the loop, each of which follows a chunk, a copy pauses."""
    pace, found = Pace(), []
    for pass_ns in passes_ns:
        pace.count_copy(CHUNK_NS)
        found.append(pace.is_pause_due(pass_ns))
    return found


def test_a_copy_that_has_the_loop_for_itself_never_pauses() -> None:
    assert pauses([IDLE_PASS_NS - 1] * 9) == [False] * 9


def test_a_copy_pauses_after_a_turn_in_which_something_was_served() -> None:
    busy = [0, IDLE_PASS_NS, 0, 0]
    assert pauses(busy * 2) == [False, False, False, True] * 2


def test_a_request_delays_the_copy_in_its_own_turn_only() -> None:
    assert pauses([0, 0, 0, IDLE_PASS_NS, 0, 0, 0, 0]) == [False, False, False, True, False, False, False, False]
