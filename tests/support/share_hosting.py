"""A broker's group coordinator with share groups, over a persister in memory, on a virtual-time loop."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from kafkapy.share.persister import (
    InitialState,
    PartitionResult,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.types import Uuid
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import run_scheduled
from tests.support.metadata_services import context


class PersisterInMemory:
    """Keeps states as the share coordinator does; `error_code` refuses everything, `refused` some partitions."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, Uuid, int], InitialState] = {}
        self.summaries: dict[tuple[Uuid, int], StateSummary] = {}
        self.error_code = 0
        self.refused: dict[int, int] = {}
        """By partition: the error code."""
        self.deletions: list[TopicIdPartition] = []
        self.on_deleted: Callable[[], None] = lambda: None

    def _code(self, partition: int) -> int:
        return self.error_code or self.refused.get(partition, 0)

    async def initialize(self, group_id: str, states: Sequence[InitialState]) -> list[PartitionResult]:
        results = []
        for state in states:
            code = self._code(state.partition)
            if not code:
                self.states[group_id, state.topic_id, state.partition] = state
            results.append(PartitionResult(state.topic_id, state.partition, code, "refused" if code else None))
        return results

    async def read(self, group_id: str, reads: Sequence[StateRead]) -> list[StateReadResult]:
        raise AssertionError("membership reads no states")

    async def write(self, group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        raise AssertionError("membership writes no states")

    async def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[PartitionResult]:
        results = []
        for topic_id, partition in partitions:
            code = self._code(partition)
            if not code:
                self.states.pop((group_id, topic_id, partition), None)
                self.deletions.append(TopicIdPartition(topic_id, partition))
            results.append(PartitionResult(topic_id, partition, code, "refused" if code else None))
        self.on_deleted()
        return results

    async def read_summary(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[StateSummary]:
        return [
            StateSummary(topic_id, partition, code, "refused")
            if (code := self._code(partition))
            else self.summaries.get((topic_id, partition)) or StateSummary(topic_id, partition)
            for topic_id, partition in partitions
        ]


def share_context(api_version: int = 1) -> Any:
    """Return what the handlers of share groups see of a request."""
    more = {"client_id": "c", "client": None, "connection": SimpleNamespace(is_held=False)}
    return SimpleNamespace(**vars(context(api_version)), **more)


class ShareHosting(GroupHosting):
    """As GroupHosting, which coordinates share groups if `share_version` is 1."""

    def __init__(self, loop: SimLoop, *, share_version: int = 1, **properties: Any) -> None:
        self.persister = PersisterInMemory()
        super().__init__(loop, **properties)
        self.commit(FeatureLevelRecord(name=SHARE_VERSION, feature_level=share_version))

    def _group_persister(self) -> PersisterInMemory:
        return self.persister

    def services(self, authorizer: Any = None) -> Any:
        found = super().services(authorizer)
        found.groups = self.groups
        return found

    def context(self, api_version: int = 1) -> Any:
        return share_context(api_version)

    async def heartbeat(
        self, member_id: str, epoch: int, topics: list[str] | None = None, *, authorizer: Any = None, **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat through its handler, and let what it leads to happen."""
        from kafkapy.handlers.share import share_group_heartbeat

        request = ShareGroupHeartbeatRequest(
            GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics, **fields
        )
        response = await share_group_heartbeat.handle(self.services(authorizer), self.context(), request)
        await run_scheduled()
        return response


async def code_of(coroutine: Any) -> tuple[int, str | None]:
    """Return the code and message that a request is refused with."""
    try:
        await coroutine
    except ApiError as error:
        return int(error.code), error.message
    raise AssertionError("it was not refused")
