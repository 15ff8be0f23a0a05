"""Attacks by much in one request: a group's tasks, its offsets, lists of configs (part A of `make abuse`)."""

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Iterator

from benchmarks.attack import Attack, answered, create_topics, hold, load_coordinator, repeat, repeat_made
from benchmarks.wire import PRODUCE_VERSION, call, connect, frame, receive
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
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from kafkapy.record.builder import build_batch_of_one, encode_record
from kafkapy.types import uuid_to_string

TOPIC = 2
STARTING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
SET, APPEND, SUBTRACT = 0, 2, 3
THROTTLED = "leader.replication.throttled.replicas"
LONG_LIST = 8_191
"""Elements of three characters, the longest list that a string of a request has."""
SUBTOPOLOGIES = 1_000
TASKS_EACH = 20
WIDE = 5_000
"""Partitions; eight sessions of as many are all that a broker has room for."""
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
    create_topics(server, wide=WIDE)
    load_coordinator(server)


def _set_share_offsets(server: Server, is_over: threading.Event) -> None:
    """Have a share group of its own begin elsewhere, in all partitions that there are, and as many made-up ones."""
    request = _begin_share_group(server, f"set-{threading.get_ident()}")
    repeat(server, is_over, [frame(request, 0)])


def _begin_share_group(server: Server, group: str) -> AlterShareGroupOffsetsRequest:
    """Have a share group begin at offset 0 of all partitions, and of as many made-up ones; return the request."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            name, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=number) for number in range(count)]
        )
        for name, count in (("wide", WIDE), ("made-up", 9_000))
    ]
    request = AlterShareGroupOffsetsRequest(group, topics=topics)
    codes: set[int] = set()
    deadline = time.monotonic() + 60
    with connect(server) as connection:
        while codes != {ErrorCode.NONE}:  # the group's coordinator is being loaded, or many begin at once
            assert time.monotonic() < deadline, codes
            response = call(connection, request, 0)
            assert response.responses or response.error_code in STARTING, response.error_code
            wide = [topic.partitions for topic in response.responses if topic.topic_name == "wide"]
            codes = {partition.error_code for partitions in wide for partition in partitions}
    return request


def _read_share_sessions(server: Server, is_over: threading.Event) -> None:
    """Load all share partitions of a group, read a record of each, and close the connection, over and over."""
    group = f"loaded-{threading.get_ident()}"
    _begin_share_group(server, group)
    opening, reading = (_share_fetch(server, group, epoch) for epoch in (0, 1))
    while not is_over.is_set():
        with contextlib.suppress(OSError, AssertionError), connect(server) as connection:
            for each in (opening, reading):
                connection.sendall(each)
                receive(connection)
                answered[server.port] += 1


def _share_fetch(server: Server, group: str, epoch: int) -> bytes:
    """Return a ShareFetch of a session of all partitions, which the first one names."""
    with connect(server) as connection:
        topics = call(connection, MetadataRequest(topics=[MetadataRequestTopic(name="wide")]), 12).topics
    partitions = [FetchPartition(number) for number in range(WIDE)]
    request = ShareFetchRequest(
        group,
        member_id=uuid_to_string(uuid.UUID(int=0).bytes),
        share_session_epoch=epoch,
        max_wait_ms=500,
        max_bytes=32 << 20,
        max_records=WIDE if epoch else 1,
        batch_size=1,
        topics=[] if epoch else [FetchTopic(topics[0].topic_id, partitions=partitions)],
    )
    return frame(request, 1)


def _fill_wide(server: Server) -> None:
    """A record in each partition, sent again until its log is there."""
    _create_wide(server)
    batch = build_batch_of_one(encode_record(None, b"v"), int(time.time() * 1000))
    missing, deadline = list(range(WIDE)), time.monotonic() + 120
    with connect(server) as connection:
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} partitions have no leader"
            data = [PartitionProduceData(number, records=batch) for number in missing[:500]]
            topics = [TopicProduceData("wide", partition_data=data)]
            response = call(connection, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)
            written = {each.index for each in response.responses[0].partition_responses if not each.error_code}
            missing = [number for number in missing if number not in written]


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
    Attack("share-sessions-loaded", _read_share_sessions, 8, prepare=_fill_wide),
    Attack("share-offsets-set", _set_share_offsets, 4, prepare=_create_wide),
]
