"""Groups in a cluster whose feature for their kind is lowered and raised again: meanwhile they are not served.

Nothing is in the way of lowering it, and nothing of the groups is lost.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from tests.scenarios.conftest import serving
from tests.support.client_requests import create_topic, until
from tests.support.features import SAFE_DOWNGRADE, UPGRADE, feature_levels, set_feature_level
from tests.support.offsets import find_coordinator
from tests.support.streams_members import reading
from tests.support.wire import WireClient

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def consumer_heartbeat(epoch: int) -> ConsumerGroupHeartbeatRequest:
    fields: Any = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["in"], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest("g", member_id=MEMBER, member_epoch=epoch, **(fields if epoch == 0 else {}))


def share_heartbeat(epoch: int) -> ShareGroupHeartbeatRequest:
    names = ["in"] if epoch == 0 else None
    return ShareGroupHeartbeatRequest("g", member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=names)


def streams_heartbeat(epoch: int) -> StreamsGroupHeartbeatRequest:
    tasks: Any = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    fields: Any = {"rebalance_timeout_ms": 60_000, "process_id": "p", "topology": reading("in"), **tasks}
    return StreamsGroupHeartbeatRequest("g", member_id=MEMBER, member_epoch=epoch, **(fields if epoch == 0 else {}))


@pytest.mark.parametrize(
    ("feature", "heartbeat", "describe"),
    [
        ("group.version", consumer_heartbeat, ConsumerGroupDescribeRequest(["g"])),
        ("share.version", share_heartbeat, ShareGroupDescribeRequest(["g"])),
        ("streams.version", streams_heartbeat, StreamsGroupDescribeRequest(["g"])),
    ],
)
def test_a_group_outlives_the_time_without_its_feature(
    tmp_path_factory: pytest.TempPathFactory, feature: str, heartbeat: Callable[[int], Any], describe: Any
) -> None:
    with serving(tmp_path_factory) as bootstrap, WireClient(bootstrap) as client:
        create_topic(client, "in")
        find_coordinator(client, "g")
        epoch = client.call(heartbeat(0), 1).member_epoch
        epoch = client.call(heartbeat(epoch), 1).member_epoch
        level = feature_levels(client)[feature]
        set_feature_level(client, feature, 0, SAFE_DOWNGRADE)
        until(lambda: client.call(heartbeat(epoch), 1).error_code == ErrorCode.UNSUPPORTED_VERSION)
        assert client.call(describe, 1).groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [each.group_id for each in client.call(ListGroupsRequest(), 5).groups] == ["g"]
        set_feature_level(client, feature, level, UPGRADE)
        until(lambda: client.call(heartbeat(epoch), 1).error_code == ErrorCode.NONE)
        (group,) = client.call(describe, 1).groups
        assert [each.member_id for each in group.members] == [MEMBER]
