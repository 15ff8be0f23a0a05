"""Configs of groups, changed while a member is there: what takes effect, what is refused."""

from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.client_requests import create_topic, until
from tests.support.group_configs import GROUP_RESOURCE
from tests.support.offsets import find_coordinator
from tests.support.wire import WireClient

SET, DELETE = 0, 1
INTERVAL = "consumer.heartbeat.interval.ms"
TIMEOUT, ASSIGNMENT = "consumer.session.timeout.ms", "consumer.assignment.interval.ms"


def alter(client: WireClient, group: str, key: str, value: str | None, operation: int = SET) -> Any:
    resource = AlterConfigsResource(
        GROUP_RESOURCE, resource_name=group, configs=[AlterableConfig(key, config_operation=operation, value=value)]
    )
    (response,) = client.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    return response


def test_heartbeat_interval_changes_while_the_member_is_there(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    find_coordinator(client, topic)
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    joined = client.call(ConsumerGroupHeartbeatRequest(topic, member_id="m", member_epoch=0, **joining), 1)
    assert joined.heartbeat_interval_ms == 5_000

    def interval() -> int:
        request = ConsumerGroupHeartbeatRequest(topic, member_id="m", member_epoch=joined.member_epoch)
        return int(client.call(request, 1).heartbeat_interval_ms)

    assert alter(client, topic, INTERVAL, "7000").error_code == 0
    until(lambda: interval() == 7_000)
    assert alter(client, topic, INTERVAL, None, DELETE).error_code == 0
    until(lambda: interval() == 5_000)


REFUSED = [
    (INTERVAL, "4999", f"{INTERVAL} must be in the range 5000 to 15000 inclusive."),
    (INTERVAL, "15001", f"{INTERVAL} must be in the range 5000 to 15000 inclusive."),
    (TIMEOUT, "44999", f"{TIMEOUT} must be in the range 45000 to 60000 inclusive."),
    (TIMEOUT, "60001", f"{TIMEOUT} must be in the range 45000 to 60000 inclusive."),
    (ASSIGNMENT, "15001", f"{ASSIGNMENT} must be in the range 0 to 15000 inclusive."),
    ("streams.num.standby.replicas", "3", "streams.num.standby.replicas must be less than or equal to 2"),
    (
        "streams.task.offset.interval.ms",
        "14999",
        "streams.task.offset.interval.ms must be greater than or equal to 15000",
    ),
    (
        "streams.assignor.name",
        "none",
        "streams.assignor.name 'none' is not a registered task assignor. Registered assignors are: [sticky].",
    ),
    (
        "errors.deadletterqueue.topic.name",
        "__dlq",
        "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
    ),
    ("consumer.nothing", "1", "Unknown group config name: consumer.nothing"),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_values_beyond_the_brokers_bounds_are_refused(
    client: WireClient, topic: str, key: str, value: str, message: str
) -> None:
    response = alter(client, topic, key, value)

    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_CONFIG, message)
