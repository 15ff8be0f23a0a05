"""Streams groups (KIP-1071) for `kafkapy groups` and the console: librdkafka's admin client has no requests for them.

Versions: FindCoordinator 1; StreamsGroupDescribe 0, which every broker with streams groups serves; Metadata 5 for the
numbers of tasks. A broker that lacks StreamsGroupDescribe has no streams groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafkapy.cli.committed_offsets import BrokerCalls, Partition, ask_coordinator, committed_offsets, described_by
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.group_names import STREAMS
from kafkapy.cli.group_offsets import lag_of, offset_row
from kafkapy.cli.topic_facts import LATEST, TopicFacts, TopicQueries
from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest


@dataclass(frozen=True, slots=True)
class StreamsTask:
    """A task: the member that runs it, "" if none does, then why; the processes with a copy of its state."""

    subtopology: str
    partition: int
    member: str
    process: str
    standbys: tuple[str, ...]
    warmups: tuple[str, ...]
    why: str | None = None

    @property
    def name(self) -> str:
        """Return the task's id as Kafka Streams writes it."""
        return f"{self.subtopology}_{self.partition}"


def described_group(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> Any | None:
    """Return StreamsGroupDescribe's group; None if there is no streams group with this id. Raises CoordinatorError.

    timeout_s: how long its coordinator is looked for.
    """
    request = StreamsGroupDescribeRequest([group_id])
    return ask_coordinator(
        brokers, group_id, lambda coordinator: described_by(brokers, coordinator.node_id, request, 0), timeout_s
    )


def describe_streams_group(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any] | None:
    """Return the output of `groups describe` for a streams group; None if there is none with this id.

    Raises CoordinatorError.
    """
    group = described_group(brokers, group_id, timeout_s)
    if group is None:
        return None
    queries = TopicQueries(brokers)
    topics = queries.topics()
    counts = partition_counts(topics)
    tasks = tasks_of(group, counts)
    committed = committed_offsets(brokers, group_id, timeout_s)
    # A topic may be deleted between these requests: its rows have no end and no lag.
    ends = queries.known_offsets(committed, LATEST)
    readers = {
        each: (member.member_id, member.client_id, member.client_host) for each, member in readers_of(group).items()
    }
    partitions = [
        offset_row(each, offset, ends.get(each), readers.get(each)) for each, offset in sorted(committed.items())
    ]
    return {
        "group": group_id,
        "type": STREAMS,
        "state": group.group_state,
        "assignor": None,  # the response has none; --json has the same keys for groups of every type
        "epoch": group.group_epoch,
        "lag": lag_of(committed, ends),
        "partitions": partitions,
        "members": [_member(each) for each in group.members],
        "subtopologies": [_subtopology(each, counts) for each in subtopologies_of(group)],
        "tasks": [_task(each) for each in tasks],
    }


def streams_tasks(brokers: BrokerCalls, group_id: str) -> list[dict[str, Any]] | None:
    """Return the output of `groups explain` for a streams group, its tasks; None if there is none with this id.

    Raises CoordinatorError.
    """
    group = described_group(brokers, group_id)
    if group is None:
        return None
    return [_task(each) for each in tasks_of(group, partition_counts(TopicQueries(brokers).topics()))]


def partition_counts(topics: Mapping[str, TopicFacts]) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in topics.items()}


def subtopologies_of(group: Any) -> list[Any]:
    """Return the subtopologies; none for a group whose members have not sent their topology."""
    return [] if group.topology is None else list(group.topology.subtopologies or ())


def inputs_of(subtopology: Any) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def internal_topics_of(subtopology: Any) -> list[str]:
    return [topic.name for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)]


def task_count(subtopology: Any, counts: Mapping[str, int]) -> int:
    """Return the number of tasks: the largest number of partitions among what it reads, as far as that exists."""
    return max((counts.get(topic, 0) for topic in inputs_of(subtopology)), default=0)


def tasks_of(group: Any, counts: Mapping[str, int]) -> list[StreamsTask]:
    """Return all tasks. `counts`: the partitions of the topics that exist."""
    running = {task: member for member in group.members for task in task_ids(member.assignment.active_tasks)}
    standbys = _processes_by_task((each.process_id, each.assignment.standby_tasks) for each in group.members)
    warmups = _processes_by_task((each.process_id, each.assignment.warmup_tasks) for each in group.members)
    targets = {task: member for member in group.members for task in task_ids(member.target_assignment.active_tasks)}
    missing = _missing_topics(group, counts)
    found = []
    for subtopology in subtopologies_of(group):
        for partition in range(task_count(subtopology, counts)):
            task = subtopology.subtopology_id, partition
            member = running.get(task)
            copies = standbys.get(task, ()), warmups.get(task, ())
            if member is not None:
                found.append(StreamsTask(*task, member.member_id, member.process_id, *copies))
            else:
                why = _why_idle(group, task, targets.get(task), missing)
                found.append(StreamsTask(*task, "", "", *copies, why))
    return found


def _missing_topics(group: Any, counts: Mapping[str, int]) -> list[str]:
    wanted = {topic for each in subtopologies_of(group) for topic in (*inputs_of(each), *internal_topics_of(each))}
    return sorted(wanted - counts.keys())


def _why_idle(group: Any, task: Partition, target: Any | None, missing: list[str]) -> str:
    """Return why no member runs a task, from the first step of the way to one that is not done."""
    if not group.members:
        return "the group has no members"
    if missing:
        return f"topics are missing: {', '.join(missing)}"
    if group.group_state == "NotReady":
        return "the partitions of the topics do not fit together: its members log which"
    if group.group_epoch > group.assignment_epoch:
        return f"the assignment of epoch {group.group_epoch} is not made yet: it waits for a heartbeat and its delay"
    if target is None:
        return f"the assignment of epoch {group.assignment_epoch} gives it to no member"
    name = f"{target.client_id} ({target.client_host})"
    if target.member_epoch < group.assignment_epoch:
        return f"{name} is to run it, and has to give up other tasks first: it is at epoch {target.member_epoch}"
    holders = [each for each in group.members if each is not target and _has_copy(each, task, target.process_id)]
    if holders:
        return f"{name} is to run it, once {holders[0].client_id} of the same process has given up its copy"
    late = [each for each in group.members if each.member_epoch < group.assignment_epoch]
    if late:
        names = ", ".join(f"{each.client_id} (epoch {each.member_epoch})" for each in late)
        return f"{name} is to run it, once it is given up by one of: {names}"
    return f"{name} is to run it, and gets it with its next heartbeat"


def _has_copy(member: Any, task: Partition, process_id: str) -> bool:
    assignment = member.assignment
    return member.process_id == process_id and (
        task in task_ids(assignment.standby_tasks) or task in task_ids(assignment.warmup_tasks)
    )


def readers_of(group: Any) -> dict[Partition, Any]:
    """Return the member that reads each source partition, which is the one that runs the task of that number."""
    inputs = {each.subtopology_id: inputs_of(each) for each in subtopologies_of(group)}
    return {
        (topic, partition): member
        for member in group.members
        for subtopology, partition in task_ids(member.assignment.active_tasks)
        for topic in inputs.get(subtopology, ())
    }


def _member(member: Any) -> dict[str, Any]:
    assignment = member.assignment
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "process": member.process_id,
        "epoch": member.member_epoch,
        "active": task_names(assignment.active_tasks),
        "standby": task_names(assignment.standby_tasks),
        "warmup": task_names(assignment.warmup_tasks),
    }


def _subtopology(subtopology: Any, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "subtopology": subtopology.subtopology_id,
        "tasks": task_count(subtopology, counts),
        "reads": inputs_of(subtopology),
        "writes": list(subtopology.repartition_sink_topics),
        "changelogs": [topic.name for topic in subtopology.state_changelog_topics],
    }


def _task(task: StreamsTask) -> dict[str, Any]:
    return {
        "task": task.name,
        "member": task.member or None,
        "process": task.process or None,
        "standbys": list(task.standbys),
        "warmups": list(task.warmups),
        "why": task.why,
    }


def task_ids(tasks: Iterable[Any]) -> Iterator[Partition]:
    for each in tasks:
        for partition in each.partitions:
            yield each.subtopology_id, partition


def task_names(tasks: Iterable[Any]) -> list[str]:
    return [f"{subtopology}_{partition}" for subtopology, partition in sorted({*task_ids(tasks)})]


def _processes_by_task(of_members: Iterable[tuple[str, Iterable[Any]]]) -> dict[Partition, tuple[str, ...]]:
    found: dict[Partition, tuple[str, ...]] = {}
    for process_id, tasks in of_members:
        for task in task_ids(tasks):
            found[task] = (*found.get(task, ()), process_id)
    return found
