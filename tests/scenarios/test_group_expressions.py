"""Members of KIP-848 groups that subscribe by regular expression; librdkafka's 0045 relies on the order."""

from typing import Any

import pytest

from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.support.client_requests import create_topic, until
from tests.support.wire import WireClient


class Consumer:
    """A member, as far as it says what it owns only when it joins; `assigned` are the topics it was told last."""

    def __init__(self, client: WireClient, group: str, names: dict[bytes, str]) -> None:
        self.client = client
        self.group = group
        self.names = names
        self.epoch = 0
        self.assigned: set[str] = set()

    def beat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id="m", member_epoch=self.epoch, **fields)
        response: ConsumerGroupHeartbeatResponse = self.client.call(request, 1)
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = {self.names[bytes(topic.topic_id)] for topic in response.assignment.topic_partitions}

    def join(self, **subscription: Any) -> None:
        self.beat(rebalance_timeout_ms=30_000, topic_partitions=[], **subscription)

    def is_assigned(self, *names: str) -> bool:
        """Heartbeat, and see what the member has then."""
        self.beat()
        return self.assigned == set(names)


@pytest.fixture
def consumer(client: WireClient, group: str) -> Consumer:
    """A consumer that may have three topics, two of which match one expression."""
    names = {suffix: f"{group}-{suffix}" for suffix in ("match-a", "match-b", "literal")}
    return Consumer(client, group, {create_topic(client, name): suffix for suffix, name in names.items()})


def test_an_expression_is_resolved_after_the_heartbeat_that_brings_it(consumer: Consumer, group: str) -> None:
    consumer.join(subscribed_topic_regex=f"{group}-match.*")
    assert (consumer.epoch, consumer.assigned) == (1, set())
    until(lambda: consumer.is_assigned("match-a", "match-b"))
    assert consumer.epoch == 2


def test_topics_subscribed_to_by_name_come_first(consumer: Consumer, group: str) -> None:
    consumer.join(subscribed_topic_regex=f"{group}-match.*", subscribed_topic_names=[f"{group}-literal"])
    assert (consumer.epoch, consumer.assigned) == (2, {"literal"})
    until(lambda: consumer.is_assigned("literal", "match-a", "match-b"))
    assert consumer.epoch == 3
