"""DescribeGroups with the tag for what is in flight: the leader answers, if group and topic may be described."""

import json
from typing import Any

from kafkapy.group.explain import IN_FLIGHT_TAG
from kafkapy.group.settings import GroupSettings
from kafkapy.handlers.groups import describe_groups
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator
from kafkapy.security.authorizer import AclOperation, ResourceType
from tests.simulator.loop import SimLoop
from tests.support.chance import SeededRandom
from tests.support.share_partition_hosting import Shares

ACCEPT = 1


class Denies:
    """Denies one operation on one resource."""

    allows_everything = False

    def __init__(self, *denied: tuple[AclOperation, ResourceType]) -> None:
        self.denied = denied

    def authorize(self, context: Any, operation: AclOperation, resource_type: ResourceType, *_: Any, **__: Any) -> bool:
        return (operation, resource_type) not in self.denied

    def authorize_by_name(self, *arguments: Any, **rest: Any) -> bool:
        return self.authorize(*arguments, **rest)


async def told(shares: Shares, *, with_tag: bool = True) -> Any:
    tags = {IN_FLIGHT_TAG: b""} if with_tag else None
    request = DescribeGroupsRequest(groups=["g"], unknown_tagged_fields=tags)
    response = await describe_groups.handle(shares.services, shares.member().context(15, 6), request)
    (group,) = type(response).decode(response.encode(6), 6).groups
    encoded = (group.unknown_tagged_fields or {}).get(IN_FLIGHT_TAG)
    return None if encoded is None else json.loads(encoded)


async def in_use(loop: SimLoop, authorizer: Any = None) -> Shares:
    """Ten records, of which m1 has accepted the first and holds the next two; the group has another coordinator."""
    shares = Shares(loop, authorizer=authorizer)
    hosting = shares.hosting
    shares.services.groups = GroupCoordinator(
        replica_manager=hosting.manager,
        settings=GroupSettings(lambda: hosting.config.group),
        clock=hosting.clock,
        random=SeededRandom(),
        wheel=hosting.wheel,
        io_pool=hosting.io_pool,
    )
    shares.produce(*[b"v"] * 10)
    member = shares.member()
    await member.acquire(max_records=3, share_acquire_mode=1)
    await member.acknowledge({0: [(0, 0, [ACCEPT])]})
    return shares


async def test_the_leader_tells_what_is_in_flight(loop: SimLoop) -> None:
    (partition,) = await told(await in_use(loop))
    assert (partition["topic"], partition["partition"], partition["members"]) == ("orders", 0, ["m1"])
    assert (partition["start_offset"], partition["high_watermark"], partition["log_start_offset"]) == (1, 10, 0)
    assert [(each["first_offset"], each["last_offset"], each["member"]) for each in partition["runs"]] == [
        (1, 2, "m1"),
        (3, 9, ""),
    ]


async def test_nothing_is_told_without_the_tag(loop: SimLoop) -> None:
    shares = await in_use(loop)
    assert await told(shares, with_tag=False) is None


async def test_groups_and_topics_that_may_not_be_described_are_left_out(loop: SimLoop) -> None:
    denied = Denies((AclOperation.DESCRIBE, ResourceType.GROUP))
    assert await told(await in_use(loop, denied)) is None
    denied = Denies((AclOperation.DESCRIBE, ResourceType.TOPIC))
    assert await told(await in_use(loop, denied)) == []
