"""A streams group's topology as the console draws it, of what a coordinator describes."""

import pytest

from kafkapy.cli.streams_groups import subtopologies_of
from kafkapy.console.streams_groups import MAX_BOXES, UNKNOWN_END, Box, Drawing, copies_of, drawing_of
from kafkapy.protocol.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from tests.unit.cli.test_streams_groups import COUNTS, Application


def columns(drawing: Drawing) -> dict[str, int]:
    places = sorted({box.x for box in drawing.boxes})
    return {box.name: places.index(box.x) for box in drawing.boxes}


def box(drawing: Drawing, name: str) -> Box:
    return next(each for each in drawing.boxes if each.name == name)


def test_what_flows_goes_from_left_to_right() -> None:
    application = Application({**COUNTS, "app-store1-changelog": 2})
    application.join("m1", "p1")
    group = application.shard.shard.streams.describe("g")
    drawing = drawing_of(subtopologies_of(group), {"in": 2, "app-1-repartition": 2})
    assert drawing is not None
    assert columns(drawing) == {
        "in": 0,
        "Subtopology 0": 1,
        "app-1-repartition": 2,
        "Subtopology 1": 3,
        "app-store1-changelog": 4,
    }
    assert all(start_x < end_x for start_x, _, end_x, _ in drawing.arrows)
    assert len(drawing.arrows) == 4
    assert box(drawing, "Subtopology 1").detail == "2 tasks"
    assert box(drawing, "app-store1-changelog").detail == "missing"


def test_no_two_boxes_share_a_place() -> None:
    reading = [Subtopology(str(number), source_topics=["a", f"b{number}"]) for number in range(5)]
    drawing = drawing_of(reading, {"a": 1})
    assert drawing is not None
    assert len({(each.x, each.y) for each in drawing.boxes}) == len(drawing.boxes) == 11
    assert all(each.x < drawing.width and each.y < drawing.height for each in drawing.boxes)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_topology_that_feeds_itself_is_drawn(length: int) -> None:
    loop = [
        Subtopology(
            str(number),
            source_topics=[] if number else ["in"],
            repartition_source_topics=[TopicInfo(f"r{number}")],
            repartition_sink_topics=[f"r{(number + 1) % length}"],
        )
        for number in range(length)
    ]
    drawing = drawing_of(loop, {})
    assert drawing is not None
    assert len(drawing.boxes) == 2 * length + 1


def test_a_topology_that_is_not_known_or_too_large_is_not_drawn() -> None:
    assert drawing_of([], {}) is None
    large = [Subtopology(str(number), source_topics=[f"t{number}"]) for number in range(MAX_BOXES)]
    assert drawing_of(large, {}) is None


def test_a_copy_lags_by_what_its_changelogs_have_more_if_their_end_is_known() -> None:
    member = Member(
        "m",
        task_offsets=[TaskOffset("1", partition=each, offset=5) for each in range(2)],
        task_end_offsets=[
            TaskOffset("1", partition=0, offset=8),
            TaskOffset("1", partition=1, offset=UNKNOWN_END),
        ],
        assignment=Assignment(standby_tasks=[TaskIds("1", partitions=[0, 1, 2])]),
    )
    rows = copies_of(DescribedGroup(members=[member]))
    assert [(each.task, each.lag) for each in rows] == [("1_0", 3), ("1_1", None), ("1_2", None)]
