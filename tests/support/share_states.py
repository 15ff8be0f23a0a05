"""A client of the share coordinator, as another broker is one: one share partition in each request."""

from collections.abc import Sequence
from typing import Any

from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.share.persister import (
    InitialState,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.share.state_messages import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE
from kafkapy.types import Uuid
from tests.support.client_requests import until
from tests.support.wire import WireClient

SHARE = 2


class StateClient:
    """Keeps the state of a share partition, with the newest versions of the APIs."""

    def __init__(self, client: WireClient, group: str, topic_id: Uuid, partition: int = 0) -> None:
        self.client = client
        self.group = group
        self.topic_id = topic_id
        self.partition = partition

    def find(self) -> Any:
        """Return the coordinator, once there is one."""
        until(lambda: not self.found().error_code)
        return self.found()

    def found(self) -> Any:
        key = SharePartitionKey(self.group, self.topic_id, self.partition).coordinator_key
        (found,) = self.client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators
        return found

    def initialize(self, state_epoch: int = 0, start_offset: int = -1) -> int:
        item = InitialState(self.topic_id, self.partition, state_epoch, start_offset)
        (result,) = INITIALIZE.results_of(self.client.call(INITIALIZE.request_of(self.group, [item]), 0))
        return int(result.error_code)

    def write(
        self, *batches: tuple[int, int, int, int], epoch: int = 0, leader: int = 0, start: int = 0, count: int = 0
    ) -> int:
        runs: Sequence[StateBatch] = [StateBatch(*each) for each in batches]
        item = StateWrite(self.topic_id, self.partition, epoch, leader, start, count, runs)
        (result,) = WRITE.results_of(self.client.call(WRITE.request_of(self.group, [item]), 1))
        return int(result.error_code)

    def read(self, leader: int = 0) -> Any:
        item = StateRead(self.topic_id, self.partition, leader)
        (result,) = READ.results_of(self.client.call(READ.request_of(self.group, [item]), 0))
        return result

    def summary(self) -> Any:
        item = TopicIdPartition(self.topic_id, self.partition)
        (result,) = READ_SUMMARY.results_of(self.client.call(READ_SUMMARY.request_of(self.group, [item]), 1))
        return result

    def delete(self) -> int:
        item = TopicIdPartition(self.topic_id, self.partition)
        (result,) = DELETE.results_of(self.client.call(DELETE.request_of(self.group, [item]), 0))
        return int(result.error_code)
