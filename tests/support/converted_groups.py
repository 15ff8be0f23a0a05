"""Groups that change their protocol: members of both kinds, what they request and are given."""

from typing import Any

from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.classic.states import ClassicState
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from tests.support.consumer_groups import FakeConsumer, image_of, topic_id
from tests.support.migration_script import assignment, subscription
from tests.support.mixed_groups import MixedWorld

TOPIC = "t"


def world_of(partitions: int = 4, **config: Any) -> MixedWorld:
    return MixedWorld(image_of(t=partitions), **config)


def speaks(*owned: int, version: int = 1) -> dict[str, bytes]:
    return {"range": subscription(*owned, version=version, topic=TOPIC)}


def classic_group(world: MixedWorld, *shares: tuple[int, ...], **fields: Any) -> list[str]:
    """Bring a classic group to a stable generation in which each member has its share; return the ids."""
    ids = [world.new_id(protocols=speaks(), **fields) for _ in shares]
    tokens = [world.join(member_id, protocols=speaks(), **fields) for member_id in ids]
    world.advance(0)
    responses = [world.joined(token) for token in tokens]
    given = {member_id: assignment(*share, topic=TOPIC) for member_id, share in zip(ids, shares, strict=True)}
    for response in responses:
        world.sync(response.member_id, response.generation_id, given if response.leader == response.member_id else None)
    assert world.group.log.state is ClassicState.STABLE
    return ids


def modern(world: MixedWorld, member_id: str = "m", **fields: Any) -> FakeConsumer:
    return FakeConsumer(world, member_id, TOPIC, **fields)  # type: ignore[arg-type]


def rejoin(world: MixedWorld, member_id: str, *owned: int, **fields: Any) -> JoinGroupResponse:
    return world.joined(world.join(member_id, protocols=speaks(*owned), **fields))


def assigned(world: MixedWorld, member_id: str, generation: int) -> list[int]:
    response = world.synced(world.sync(member_id, generation))
    return sorted(partition.partition for partition in assigned_partitions(response.assignment))


def own_partitions(world: MixedWorld, member_id: str) -> list[int]:
    return sorted(world.consumer_group.log.members[member_id].assigned.get(topic_id(TOPIC), {}))
