"""What requests about groups are answered by a broker that does not coordinate the group, loads its log, or has closed.

The outcomes are those of Apache Kafka's GroupCoordinatorServiceTest.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.metadata.image import GROUP_VERSION, STREAMS_VERSION
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.primitives import MessageStruct
from tests.simulator.loop import SimLoop
from tests.support.authorization_script import request
from tests.support.group_hosting import GROUP
from tests.support.hosting import run_scheduled, topic_id
from tests.support.share_hosting import ShareHosting

OF_GROUP = {"group_id": GROUP}
MEMBER = {**OF_GROUP, "member_id": "m"}
TASKS: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
TOPOLOGY = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["orders"]}]}
JOINS = {**MEMBER, "member_epoch": 0}
JOINS_CLASSIC = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
COMMITTED = {"topic_id": topic_id("orders"), "partitions": [{"partition_index": 0, "committed_offset": 0}]}
MOVED = {"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 0}]}

REQUESTS: dict[str, dict[str, Any]] = {
    "JoinGroup": {**MEMBER, **JOINS_CLASSIC, "protocols": [{"name": "range", "metadata": b""}]},
    "SyncGroup": {**MEMBER, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"},
    "Heartbeat": {**MEMBER, "generation_id": 1},
    "LeaveGroup": {**OF_GROUP, "members": [{"member_id": "m"}, {"member_id": "n"}]},
    "DescribeGroups": {"groups": [GROUP]},
    "OffsetCommit": {**MEMBER, "generation_id_or_member_epoch": 1, "topics": [COMMITTED]},
    "OffsetFetch": {"groups": [{**OF_GROUP, "topics": [{"topic_id": topic_id("orders"), "partition_indexes": [0]}]}]},
    "OffsetDelete": {**OF_GROUP, "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
    "DeleteGroups": {"groups_names": [GROUP]},
    "ConsumerGroupHeartbeat": {
        **JOINS,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": [GROUP]},
    "ShareGroupHeartbeat": {**JOINS, "subscribed_topic_names": ["orders"]},
    "ShareGroupDescribe": {"group_ids": [GROUP]},
    "DescribeShareGroupOffsets": {"groups": [{**OF_GROUP, "topics": None}]},
    "AlterShareGroupOffsets": {**OF_GROUP, "topics": [MOVED]},
    "DeleteShareGroupOffsets": {**OF_GROUP, "topics": [{"topic_name": "orders"}]},
    "StreamsGroupHeartbeat": {
        **JOINS,
        **TASKS,
        "rebalance_timeout_ms": 1_000,
        "process_id": "p",
        "topology": TOPOLOGY,
    },
    "StreamsGroupDescribe": {"group_ids": [GROUP]},
}
"""By API: a request about one group that would be served."""


def hosting_of(loop: SimLoop, *, broker_count: int = 1) -> ShareHosting:
    """Return a broker with groups of all kinds, and the topic orders; it coordinates no group yet."""
    hosting = ShareHosting(loop, broker_count=broker_count)
    for name in (GROUP_VERSION, STREAMS_VERSION):
        hosting.commit(FeatureLevelRecord(name=name, feature_level=1))
    hosting.create_topic("orders")
    return hosting


async def loading(loop: SimLoop) -> ShareHosting:
    """Return a broker that is about to read the log of its groups."""
    hosting = hosting_of(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    hosting.restart()
    return hosting


async def lagging(loop: SimLoop) -> ShareHosting:
    """Return a broker whose follower does not fetch the log of the groups, to which an offset has been appended."""
    hosting = hosting_of(loop, broker_count=2)
    hosting.create_offsets_topic(replicas=[1, 2])
    hosting.start(hosting.commit_offset(5))
    await run_scheduled()
    return hosting


async def closed(loop: SimLoop) -> ShareHosting:
    hosting = hosting_of(loop)
    hosting.create_offsets_topic()
    await hosting.groups.close()
    return hosting


def without_id(fields: Any) -> Any:
    """Return a request with the empty string in place of the group's id."""
    if isinstance(fields, dict):
        return {name: without_id(value) for name, value in fields.items()}
    if isinstance(fields, list):
        return [without_id(each) for each in fields]
    return "" if fields == GROUP else fields


async def codes(hosting: ShareHosting, api: str, fields: dict[str, Any]) -> set[int]:
    """Return the error codes of a response in the newest version, those of its groups, topics and partitions too."""
    row = BROKER_APIS[next(each.key for each in APIS.values() if each.name == api)]
    handler = importlib.import_module(f"kafkapy.{row.handler}")
    context = hosting.context(row.max_version)
    try:
        return set(error_codes(await handler.handle(hosting.services(), context, request(api, fields))))
    except ApiError as error:
        return {int(error.code)}


def error_codes(response: Any) -> Iterator[int]:
    if isinstance(response, list):
        for each in response:
            yield from error_codes(each)
    elif isinstance(response, MessageStruct):
        for name in response.field_names():
            value = getattr(response, name)
            yield from (value,) if name == "error_code" else error_codes(value)


@pytest.mark.parametrize("api", REQUESTS)
async def test_a_broker_without_the_group_is_not_its_coordinator(loop: SimLoop, api: str) -> None:
    assert ErrorCode.NOT_COORDINATOR in await codes(hosting_of(loop), api, REQUESTS[api])


@pytest.mark.parametrize("api", [api for api in REQUESTS if api != "Heartbeat"])
async def test_while_the_log_is_read_requests_are_to_be_tried_again(loop: SimLoop, api: str) -> None:
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in await codes(await loading(loop), api, REQUESTS[api])


async def test_a_heartbeat_succeeds_while_the_log_is_read(loop: SimLoop) -> None:
    """Members would join again else, though the group may have them."""
    assert await codes(await loading(loop), "Heartbeat", REQUESTS["Heartbeat"]) == {ErrorCode.NONE}


@pytest.mark.parametrize("api", [api for api in REQUESTS if api != "OffsetFetch"])
async def test_after_the_end_the_coordinator_is_not_available(loop: SimLoop, api: str) -> None:
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE in await codes(await closed(loop), api, REQUESTS[api])


@pytest.mark.parametrize(
    "api", ["ConsumerGroupHeartbeat", "StreamsGroupHeartbeat", "DescribeGroups", "OffsetDelete", "DeleteGroups"]
)
async def test_what_is_not_replicated_in_time_makes_the_coordinator_unavailable(loop: SimLoop, api: str) -> None:
    hosting = await lagging(loop)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE in await codes(hosting, api, REQUESTS[api])


async def test_who_fetches_offsets_gets_a_code_at_which_old_clients_try_again(loop: SimLoop) -> None:
    """Clients before 3.9 fail at COORDINATOR_NOT_AVAILABLE, which they do not expect in this response."""
    of_the_response = ErrorCode.NONE  # the group has its own
    for hosting in (await lagging(loop), await closed(loop)):
        found = await codes(hosting, "OffsetFetch", REQUESTS["OffsetFetch"])
        assert found == {of_the_response, ErrorCode.NOT_COORDINATOR}


async def test_groups_are_listed_whole_or_not_at_all(loop: SimLoop) -> None:
    assert await codes(hosting_of(loop), "ListGroups", {}) == {ErrorCode.NONE}, "of the groups here, which are none"
    assert await codes(await loading(loop), "ListGroups", {}) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert await codes(await closed(loop), "ListGroups", {}) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("api", REQUESTS)
async def test_a_group_needs_an_id_unless_it_has_nothing_but_offsets(loop: SimLoop, api: str) -> None:
    """Of simple consumers there may be a group without an id: it may be described, deleted, and its offsets fetched."""
    hosting = hosting_of(loop)
    hosting.create_offsets_topic()
    other = {
        "DescribeGroups": ErrorCode.GROUP_ID_NOT_FOUND,
        "DeleteGroups": ErrorCode.GROUP_ID_NOT_FOUND,
        "OffsetCommit": ErrorCode.GROUP_ID_NOT_FOUND,  # as the request names a member
        "OffsetFetch": ErrorCode.NONE,
        "DescribeShareGroupOffsets": ErrorCode.NONE,
        "ConsumerGroupHeartbeat": ErrorCode.INVALID_REQUEST,
        "ShareGroupHeartbeat": ErrorCode.INVALID_REQUEST,
        "StreamsGroupHeartbeat": ErrorCode.INVALID_REQUEST,
    }
    found = await codes(hosting, api, without_id(REQUESTS[api]))
    assert found == {other.get(api, ErrorCode.INVALID_GROUP_ID)}
