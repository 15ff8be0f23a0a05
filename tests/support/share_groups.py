"""A shard of share groups without a broker, on the world of consumer_groups.py."""

from dataclasses import fields, replace
from typing import Any

from kafkapy.config.share import ShareConfig
from kafkapy.group.decision import GroupDecision
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.share.decision import InitializeStates
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.state import ShareGroupLog
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from kafkapy.types import Uuid
from tests.support.consumer_groups import CLIENT, GroupWorld, names_of


class ShareWorld:
    """One shard. `to_initialize` is what the shard has asked to be initialised and nobody has done yet."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, **config: Any) -> None:
        """`config`: the broker's keys; the assignment interval is 0 by default."""
        self.groups_world = GroupWorld(image)
        assert config.keys() <= {field.name for field in fields(ShareConfig)}
        self.groups_world.share_config = replace(ShareConfig(), **{"group_share_assignment_interval_ms": 0, **config})
        self.to_initialize: list[InitializeStates] = []
        self.written: list[CoordinatorRecord] = []

    @property
    def shard(self) -> Any:
        return self.groups_world.shard

    @property
    def image(self) -> MetadataImage:
        return self.groups_world.image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        self.groups_world.image = image

    def group(self, group_id: str = "g") -> ShareGroup:
        found = self.groups_world.groups[group_id]
        assert isinstance(found, ShareGroup)
        return found

    def log(self, group_id: str = "g") -> ShareGroupLog:
        return self.group(group_id).log

    def commit(self, decision: Any) -> list[CoordinatorRecord]:
        self.written = self.groups_world.commit(GroupDecision(records=decision.records))
        return self.written

    def names_written(self) -> list[str]:
        """Return the types of the records of the last decision, tombstones with a minus before."""
        return [name.replace("ShareGroup", "") for name in names_of(self.written)]

    def send(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        decision = self.shard.share.heartbeat(request, CLIENT, self.groups_world.now_ms)
        self.commit(decision)
        self.to_initialize += decision.effects
        assert isinstance(decision.response, ShareGroupHeartbeatResponse)
        return decision.response

    def heartbeat(
        self, member_id: str, epoch: int, topics: list[str] | None = None, **rest: Any
    ) -> ShareGroupHeartbeatResponse:
        return self.send(
            ShareGroupHeartbeatRequest(
                **{
                    "group_id": "g",
                    "member_id": member_id,
                    "member_epoch": epoch,
                    "subscribed_topic_names": topics,
                    **rest,
                }
            )
        )

    def join(self, member_id: str, *topics: str) -> ShareGroupHeartbeatResponse:
        return self.heartbeat(member_id, 0, list(topics))

    def initialize(self) -> None:
        """Succeed with all that is to be initialised."""
        for effect in self._taken():
            self.commit(self.shard.share.states_initialized(effect.group_id, partitions(effect)))

    def fail_to_initialize(self) -> None:
        for effect in self._taken():
            self.commit(self.shard.share.states_failed(effect.group_id, partitions(effect)))

    def _taken(self) -> list[InitializeStates]:
        taken, self.to_initialize = self.to_initialize, []
        return taken

    def pass_time(self, duration_ms: int) -> list[CoordinatorRecord]:
        self.written = self.groups_world.pass_time(duration_ms)
        return self.written


def partitions(effect: InitializeStates) -> dict[Uuid, set[int]]:
    return {topic_id: set(offsets) for topic_id, offsets in effect.start_offsets.items()}


def assigned(response: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """Return the assignment by topic name (consumer_groups.topic_id), None if the response has none."""
    if response.assignment is None:
        return None
    return {
        topic.topic_id.rstrip(b"\0").decode(): list(topic.partitions) for topic in response.assignment.topic_partitions
    }
