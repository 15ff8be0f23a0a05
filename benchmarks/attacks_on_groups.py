"""Attacks by much in one request: a group's tasks, its offsets, lists of configs (part A of `make abuse`)."""

import itertools
import threading
import uuid
from collections.abc import Iterator

from benchmarks.attack import Attack, create_topics, load_coordinator, repeat, repeat_made
from benchmarks.wire import call, connect, frame
from harness.servers import Server
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)

TOPIC = 2
SET, APPEND, SUBTRACT = 0, 2, 3
THROTTLED = "leader.replication.throttled.replicas"
LONG_LIST = 8_191
"""Elements of three characters, the longest list that a string of a request has."""
SUBTOPOLOGIES = 1_000
TASKS_EACH = 20


# ---- lists of configs


def _change_lists(server: Server, is_over: threading.Event) -> None:
    """Subtract what is not there, and append what is."""
    repeat(server, is_over, [frame(_alter("2:2", SUBTRACT), 1), frame(_alter("1:1", APPEND), 1)])


def _make_long_list(server: Server) -> None:
    create_topics(server, listed=1)
    with connect(server) as connection:
        (response,) = call(connection, _alter("1:1", SET), 1).responses
    assert not response.error_code, response


def _alter(element: str, operation: int) -> IncrementalAlterConfigsRequest:
    value = ",".join([element] * LONG_LIST)
    configs = [AlterableConfig(THROTTLED, config_operation=operation, value=value)]
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=TOPIC, resource_name="listed", configs=configs)]
    )


# ---- streams groups


def _topology() -> Topology:
    return Topology(
        epoch=1, subtopologies=[Subtopology(f"{number}", source_topics=["read"]) for number in range(SUBTOPOLOGIES)]
    )


def _new_streams_groups(prefix: str) -> Iterator[bytes]:
    """Joins, each of the first member of a group of 20,000 tasks."""
    for number in itertools.count():
        yield frame(
            StreamsGroupHeartbeatRequest(
                group_id=f"{prefix}-{number}",
                member_id=str(uuid.uuid4()),
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                topology=_topology(),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id=str(uuid.uuid4()),
            ),
            0,
        )


def _join_streams_groups(server: Server, is_over: threading.Event) -> None:
    repeat_made(server, is_over, _new_streams_groups(f"streams-{threading.get_ident()}"), depth=1)


def _own_all_tasks(server: Server, is_over: threading.Event) -> None:
    """Heartbeats of a group's only member, each with all tasks that it has."""
    group, member = f"owned-{threading.get_ident()}", str(uuid.uuid4())
    join = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=60_000,
        topology=_topology(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
    )
    with connect(server) as connection:
        joined = call(connection, join, 0)
    owned = [TaskIds(f"{number}", partitions=list(range(TASKS_EACH))) for number in range(SUBTOPOLOGIES)]
    heartbeat = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=joined.member_epoch,
        active_tasks=owned,
        standby_tasks=[],
        warmup_tasks=[],
    )
    repeat(server, is_over, [frame(heartbeat, 0)])


def _create_read(server: Server) -> None:
    create_topics(server, read=TASKS_EACH)
    load_coordinator(server)


# ---- share groups


def _describe_share_offsets(server: Server, is_over: threading.Event) -> None:
    """Offsets of a group that is not there, of as many partitions as a request may name."""
    topics = [
        DescribeShareGroupOffsetsRequestTopic(name, partitions=list(range(9_000))) for name in ("wide", "made-up")
    ]
    group = DescribeShareGroupOffsetsRequestGroup("share", topics=topics)
    repeat(server, is_over, [frame(DescribeShareGroupOffsetsRequest(groups=[group]), 0)])


def _create_wide(server: Server) -> None:
    create_topics(server, wide=5_000)
    load_coordinator(server)


GROUP_ATTACKS = [
    Attack("config-lists", _change_lists, 4, prepare=_make_long_list),
    Attack("streams-joins", _join_streams_groups, 4, prepare=_create_read),
    Attack("streams-owned-tasks", _own_all_tasks, 4, prepare=_create_read),
    Attack("share-offsets", _describe_share_offsets, 8, prepare=_create_wide),
]
