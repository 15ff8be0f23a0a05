"""Streams groups (KIP-1071): the topology as a drawing, tasks by process, lag of copies; other_groups.py has the rest.

The drawing has topics and subtopologies as boxes in columns, each subtopology to the right of the topics that it reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafkapy.cli.streams_groups import (
    StreamsTask,
    partition_counts,
    subtopologies_of,
    task_count,
    task_names,
    tasks_of,
)
from kafkapy.cli.topic_facts import TopicQueries
from kafkapy.console.brokers import ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.groups import Group
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

MAX_TASKS: Final = 500
"""On a page; `kafkapy groups describe` shows all."""
MAX_BOXES: Final = 200
"""Boxes of a drawing; of a larger topology only the processes are shown."""
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 220, 44, 70, 16, 8
UNKNOWN_END: Final = INT64_MAX
"""Kafka Streams reports this as the end of changelogs that it has not looked up yet."""
NAME_LENGTH: Final = 30
"""Characters of a name that fit into a box."""


@dataclass(frozen=True, slots=True)
class Box:
    """A topic or subtopology with its position, BOX_WIDTH wide. `kind`: topic, internal, changelog or subtopology."""

    name: str
    kind: str
    detail: str
    x: int
    y: int

    @property
    def short_name(self) -> str:
        return self.name if len(self.name) <= NAME_LENGTH else f"{self.name[: NAME_LENGTH - 1]}…"


@dataclass(frozen=True, slots=True)
class Drawing:
    """`arrows`: from one point to another: (x, y, x, y)."""

    width: int
    height: int
    boxes: Sequence[Box] = ()
    arrows: Sequence[tuple[int, int, int, int]] = ()
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT
    bend: int = GAP_X // 2
    """The length of an arrow's horizontal part at each end."""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """The tasks, by name, of the members of one process."""

    process: str
    clients: Sequence[str]
    active: Sequence[str]
    standby: Sequence[str]
    warmup: Sequence[str]


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A copy of a task's state; `lag`: how many records of its changelogs it lacks, None if that is not reported."""

    task: str
    role: str
    client: str
    lag: int | None


@dataclass(frozen=True, slots=True)
class Application:
    """A streams group with its topology and tasks. `problem`: why these are not known."""

    drawing: Drawing | None = None
    processes: Sequence[ProcessRow] = ()
    idle: Sequence[StreamsTask] = ()
    copies: Sequence[CopyRow] = ()
    task_count: int = 0
    problem: str | None = None


def application(clients: Clients, group: Group) -> Application:
    """Return the topology and tasks of a streams group. If a broker does not answer, the page shows that."""
    described = group.described
    try:
        with failures():
            counts = partition_counts(TopicQueries(clients).topics())
    except ClusterError as error:
        return Application(problem=str(error))
    tasks = tasks_of(described, counts)
    return Application(
        drawing_of(subtopologies_of(described), counts),
        _processes(described),
        [task for task in tasks if task.why is not None][:MAX_TASKS],
        list(copies_of(described))[:MAX_TASKS],
        len(tasks),
    )


def drawing_of(subtopologies: Sequence[Any], counts: Mapping[str, int]) -> Drawing | None:
    """Return the drawing; None if the topology is unknown or too large."""
    columns = _columns(subtopologies)
    cells = [(column, name, kind) for (kind, name), column in columns.items()]
    if not cells or len(cells) > MAX_BOXES:
        return None
    details = {each.subtopology_id: f"{task_count(each, counts)} tasks" for each in subtopologies}
    rows: dict[int, int] = {}
    boxes: dict[tuple[str, str], Box] = {}
    for column, name, kind in sorted(cells, key=lambda cell: cell[0]):
        row = rows.get(column, 0)
        rows[column] = row + 1
        x, y = MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)
        missing = "missing" if name not in counts else f"{counts[name]} partitions"
        is_subtopology = kind == "subtopology"
        title = f"Subtopology {name}" if is_subtopology else name
        boxes[kind, name] = Box(title, kind, details[name] if is_subtopology else missing, x, y)
    arrows = [_arrow(boxes[start], boxes[end]) for start, end in _edges(subtopologies)]
    width = max(box.x for box in boxes.values()) + BOX_WIDTH + MARGIN
    height = max(box.y for box in boxes.values()) + BOX_HEIGHT + MARGIN
    return Drawing(width, height, list(boxes.values()), arrows)


_Node = tuple[str, str]
"""(kind, name)"""


def _edges(subtopologies: Iterable[Any]) -> Iterator[tuple[_Node, _Node]]:
    """Yield the edges: from topics to subtopologies that read them, and from these to topics that they write."""
    for each in subtopologies:
        here = "subtopology", each.subtopology_id
        for topic in each.source_topics:
            yield ("topic", topic), here
        for topic in each.repartition_source_topics:
            yield ("internal", topic.name), here
        for topic in each.repartition_sink_topics:
            yield here, ("internal", topic)
        for topic in each.state_changelog_topics:
            yield here, ("changelog", topic.name)


def _columns(subtopologies: Sequence[Any]) -> dict[_Node, int]:
    """Return each box's column, one to the right of its inputs; a loop is followed once."""
    edges = list(_edges(subtopologies))
    columns: dict[_Node, int] = {}
    for start, end in edges:
        columns.setdefault(start, 0)
        columns.setdefault(end, 0)
    for _ in range(len(columns)):
        moved = False
        for start, end in edges:
            if columns[end] <= columns[start] and columns[start] + 1 < len(columns):
                columns[end], moved = columns[start] + 1, True
        if not moved:
            break
    used = {column: index for index, column in enumerate(sorted(set(columns.values())))}
    return {node: used[column] for node, column in columns.items()}


def _arrow(start: Box, end: Box) -> tuple[int, int, int, int]:
    return start.x + BOX_WIDTH, start.y + BOX_HEIGHT // 2, end.x, end.y + BOX_HEIGHT // 2


def _processes(group: Any) -> list[ProcessRow]:
    by_process: dict[str, list[Any]] = {}
    for member in group.members:
        by_process.setdefault(member.process_id, []).append(member)
    return [
        ProcessRow(
            process,
            sorted({f"{each.client_id} ({each.client_host})" for each in members}),
            task_names(tasks for each in members for tasks in each.assignment.active_tasks),
            task_names(tasks for each in members for tasks in each.assignment.standby_tasks),
            task_names(tasks for each in members for tasks in each.assignment.warmup_tasks),
        )
        for process, members in sorted(by_process.items())
    ]


def copies_of(group: Any) -> Iterator[CopyRow]:
    """Yield the copies of tasks that the members of a described group have."""
    for member in group.members:
        offsets, ends = _by_task(member.task_offsets), _by_task(member.task_end_offsets)
        assignment = member.assignment
        for role, tasks in (("standby", assignment.standby_tasks), ("warm-up", assignment.warmup_tasks)):
            for name in task_names(tasks):
                is_known = name in offsets and ends.get(name, UNKNOWN_END) != UNKNOWN_END
                lag = max(ends[name] - offsets[name], 0) if is_known else None
                yield CopyRow(name, role, f"{member.client_id} ({member.client_host})", lag)


def _by_task(offsets: Iterable[Any]) -> dict[str, int]:
    return {f"{each.subtopology_id}_{each.partition}": each.offset for each in offsets}
