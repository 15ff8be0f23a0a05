"""Attacks by much in one request: a group's tasks, its offsets, lists of configs (part A of `make abuse`)."""

import itertools
import threading
import time
import uuid
from collections.abc import Iterator

from benchmarks.attack import Attack, create_topics, hold, load_coordinator, repeat, repeat_made
from benchmarks.wire import call, connect, frame
from harness.servers import Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
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
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from kafkapy.types import uuid_to_string

TOPIC = 2
STARTING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
SET, APPEND, SUBTRACT = 0, 2, 3
THROTTLED = "leader.replication.throttled.replicas"
LONG_LIST = 8_191
"""Elements of three characters, the longest list that a string of a request has."""
SUBTOPOLOGIES = 1_000
TASKS_EACH = 20
SHARE_GROUPS = 50
SESSION_PARTITIONS = 1_000


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


def _topology(epoch: int = 1, prefix: str = "") -> Topology:
    return Topology(
        epoch=epoch,
        subtopologies=[Subtopology(f"{prefix}{number}", source_topics=["read"]) for number in range(SUBTOPOLOGIES)],
    )


def _join(group: str, member: str, topology: Topology) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
    )


def _new_streams_groups(prefix: str) -> Iterator[bytes]:
    """Joins, each of the first member of a group of 20,000 tasks."""
    for number in itertools.count():
        yield frame(_join(f"{prefix}-{number}", str(uuid.uuid4()), _topology()), 0)


def _join_streams_groups(server: Server, is_over: threading.Event) -> None:
    repeat_made(server, is_over, _new_streams_groups(f"streams-{threading.get_ident()}"), depth=1)


def _own_all_tasks(server: Server, is_over: threading.Event) -> None:
    """Heartbeats of a group's only member, each with all tasks that it has."""
    group, member = f"owned-{threading.get_ident()}", str(uuid.uuid4())
    with connect(server) as connection:
        joined = call(connection, _join(group, member, _topology()), 0)
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


def _set_share_offsets(server: Server, is_over: threading.Event) -> None:
    """Have a share group of its own begin elsewhere, in all partitions that there are, and as many made-up ones."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            name, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=number) for number in range(count)]
        )
        for name, count in (("wide", 5_000), ("made-up", 9_000))
    ]
    request = AlterShareGroupOffsetsRequest(f"set-{threading.get_ident()}", topics=topics)
    with connect(server) as connection:
        deadline = time.monotonic() + 60
        while not (response := call(connection, request, 0)).responses:  # the group's coordinator is being loaded
            assert response.error_code in STARTING, response.error_code
            assert time.monotonic() < deadline
    (wide,) = (topic for topic in response.responses if topic.topic_name == "wide")
    assert {partition.error_code for partition in wide.partitions} == {ErrorCode.NONE}
    repeat(server, is_over, [frame(request, 0)])


def _open_share_sessions(server: Server, is_over: threading.Event) -> None:
    """Open sessions of many groups and partitions, and read no response."""
    with connect(server) as connection:
        topics = call(connection, MetadataRequest(topics=[MetadataRequestTopic(name="wide")]), 12).topics
    partitions = [FetchPartition(number) for number in range(SESSION_PARTITIONS)]
    opens = [
        frame(
            ShareFetchRequest(
                f"unread-{number}",
                member_id=uuid_to_string(uuid.uuid4().bytes),
                max_wait_ms=500,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
                topics=[FetchTopic(topics[0].topic_id, partitions=partitions)],
            ),
            1,
        )
        for number in range(SHARE_GROUPS)
    ]
    hold(server.port, is_over, b"".join(opens), 60)


def _change_topologies(server: Server, is_over: threading.Event) -> None:
    """A member that joins its group over and over, with another topology of many tasks each time."""
    group, member = f"changed-{threading.get_ident()}", str(uuid.uuid4())

    def joins() -> Iterator[bytes]:
        for epoch in itertools.count(1):
            yield frame(_join(group, member, _topology(epoch, f"{epoch}-")), 0)

    repeat_made(server, is_over, joins(), depth=1)


GROUP_ATTACKS = [
    Attack("config-lists", _change_lists, 4, prepare=_make_long_list),
    Attack("streams-joins", _join_streams_groups, 4, prepare=_create_read),
    Attack("streams-owned-tasks", _own_all_tasks, 4, prepare=_create_read),
    Attack("streams-topologies", _change_topologies, 4, prepare=_create_read),
    Attack("share-offsets", _describe_share_offsets, 8, prepare=_create_wide),
    Attack("share-sessions-unread", _open_share_sessions, 1, prepare=_create_wide),
    Attack("share-offsets-set", _set_share_offsets, 4, prepare=_create_wide),
]
