"""The topic of a registry, without a broker: what its end says about what was read."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.record.builder import BatchFields, build_batch
from kafkapy.registry.errors import RegistryError
from kafkapy.registry.records import NOOP
from kafkapy.registry.schemas_topic import SchemasTopic
from kafkapy.registry.state import RegistryState


def topic_with(end_offset: Callable[[], int]) -> SchemasTopic:
    """Return the topic of a cluster that answers ListOffsets with this."""

    def call(*_: object) -> ListOffsetsResponse:
        partition = ListOffsetsPartitionResponse(offset=end_offset())
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[partition])])

    cluster: Any = SimpleNamespace(to_leader=lambda _: SimpleNamespace(call=call))
    return SchemasTopic(cluster, RegistryState(), may_write=lambda: True)


def read(topic: SchemasTopic, offsets: Sequence[int]) -> None:
    for offset in offsets:
        topic._replay(build_batch([(0, NOOP, None, ())], BatchFields(base_offset=offset)))


def test_what_is_read_after_the_end_was_asked_for_is_not_lost() -> None:
    """Another registry appends, and the reading thread is faster than the response."""

    def end_offset() -> int:
        read(topic, [1])
        return 1

    topic = topic_with(end_offset)
    read(topic, [0])
    topic.catch_up()


@pytest.mark.parametrize(("end_offset", "is_lost"), [(0, True), (1, True), (2, False)])
def test_an_end_before_what_was_read_is_a_loss(end_offset: int, is_lost: bool) -> None:
    topic = topic_with(lambda: end_offset)
    read(topic, [0, 1])
    with pytest.raises(RegistryError, match="lost records that were read") if is_lost else nullcontext():
        topic.catch_up()
