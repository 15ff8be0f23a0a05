"""What clients push has bounds in characters too: names and labels are theirs to choose."""

from kafkapy.telemetry.histograms import Buckets
from kafkapy.telemetry.otlp import Point
from kafkapy.telemetry.received import MAX_CHARACTERS, MAX_CHARACTERS_OF_INSTANCE, MAX_OF_INSTANCE, ReceivedMetrics

WIDE = tuple((f"{index:02}".ljust(250, "k"), "v" * 250) for index in range(32))
WIDE_CHARACTERS = 32 * 500
CLIENT = bytes(range(16))


def wide(number: int) -> Point:
    return Point(f"m{number:07}", WIDE, 1, False, False)


def test_an_instance_has_its_share_of_the_room() -> None:
    received = ReceivedMetrics()
    for number in range(100):
        received.add(CLIENT, wide(number))
    fitting = MAX_CHARACTERS_OF_INSTANCE // (WIDE_CHARACTERS + 8)
    assert (received.series_count, received.dropped_count) == (fitting, 100 - fitting)
    received.add(CLIENT, wide(0)._replace(value=2))
    assert received.of(CLIENT)["m0000000", WIDE, False] == 2, "what is kept has its room"


def test_all_instances_share_the_room_and_give_it_back() -> None:
    received = ReceivedMetrics()
    instances = [number.to_bytes(16, "big") for number in range(20)]
    for instance in instances:
        for number in range(100):
            received.add(instance, wide(number))
    assert MAX_CHARACTERS - WIDE_CHARACTERS - 8 < received.character_count <= MAX_CHARACTERS
    for instance in instances:
        received.forget(instance)
    assert (received.series_count, received.character_count) == (0, 0)
    received.add(CLIENT, wide(0))
    assert received.series_count == 1


def test_the_labels_of_the_instance_count_with_each_series() -> None:
    received = ReceivedMetrics()
    for number in range(1000):
        received.add(CLIENT, Point(f"m{number:03}", (), 1, False, False), identity_characters=996)
    assert received.series_count == MAX_CHARACTERS_OF_INSTANCE // 1000


def histogram(*counts: int, is_delta: bool = False) -> Point:
    bounds = tuple(map(float, range(len(counts) - 1)))
    return Point("h", (), sum(counts), True, is_delta, Buckets(bounds, counts, 1.0))


def test_a_histogram_takes_the_room_of_its_lines() -> None:
    received = ReceivedMetrics()
    for lines, point in ((5, histogram(1, 2, 3)), (3, histogram(4)), (6, histogram(1, 1, 1, 1))):
        received.add(CLIENT, point, identity_characters=9)
        assert (received.series_count, received.character_count) == (lines, lines * 10)
    received.forget(CLIENT)
    assert (received.series_count, received.character_count) == (0, 0)


def test_a_histogram_without_room_is_dropped_as_a_whole() -> None:
    received = ReceivedMetrics()
    for index in range(MAX_OF_INSTANCE - 4):
        received.add(CLIENT, Point(f"m{index}", (), 1, False, False))
    received.add(CLIENT, histogram(1, 2, 3))
    assert (received.dropped_count, ("h", (), True) in received.of(CLIENT)) == (1, False)
    received.add(CLIENT, histogram(1, 2))
    assert received.series_count == MAX_OF_INSTANCE
    received.add(CLIENT, histogram(1, 2, 3))
    assert received.dropped_count == 2
    received.add(CLIENT, histogram(5, 6))
    assert received.of(CLIENT)["h", (), True] == Buckets((0.0,), (5, 6), 1.0), "what has its room is followed"


def test_deltas_of_a_histogram_add_up() -> None:
    received = ReceivedMetrics()
    for _ in range(2):
        received.add(CLIENT, histogram(1, 2, is_delta=True))
    assert received.of(CLIENT)["h", (), True] == Buckets((0.0,), (2, 4), 2.0)
