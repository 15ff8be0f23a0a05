"""A broker whose disk is full says nothing of the metadata: another one is asked."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkapy.embedded.observed.fetching import topic_names
from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from kafkapy.protocol.primitives import Message


@dataclass
class SomeFull:
    """Brokers 1 to 3, some of whose disks are full. `asked`: those that were."""

    full: tuple[int, ...]
    asked: list[int] = field(default_factory=list)

    def ids(self) -> list[int]:
        return [1, 2, 3]

    def ask(self, node_id: int, request: Message) -> Any:
        self.asked.append(node_id)
        if node_id in self.full:
            raise ProtocolError("the connection was closed before the response was there")
        return MetadataResponse(topics=[MetadataResponseTopic(name="orders")])


def test_the_first_broker_that_knows_the_metadata_is_asked() -> None:
    nodes = SomeFull(full=(1,))
    assert topic_names(nodes) == ["orders"]
    assert nodes.asked == [1, 2]


def test_if_none_knows_it_the_last_one_says_why() -> None:
    with pytest.raises(ProtocolError, match="the connection was closed"):
        topic_names(SomeFull(full=(1, 2, 3)))
