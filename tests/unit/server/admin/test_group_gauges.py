"""Groups counted by kind and state: cases of Apache Kafka's GroupMetadataManagerTest (4.3.1)."""

from types import SimpleNamespace
from typing import Any, cast

from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.records import current_record as consumer_record
from kafkapy.group.consumer.records import epoch_record
from kafkapy.group.consumer.records import target_epoch_record as consumer_target_record
from kafkapy.group.counts import GroupCounts
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shard import GroupShard
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import current_record, member_record, member_tombstones, target_epoch_record
from kafkapy.metrics.rates import Rates
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue
from kafkapy.server.admin.group_gauges import EVENTS, GROUP_COORDINATOR, event_gauges, group_gauges
from tests.support.classic_groups import ClassicWorld
from tests.support.consumer_groups import GroupWorld, image_of
from tests.support.streams_groups import StreamsShard


def group(
    group_id: str, target_epoch: int, member_epoch: int | None, *, validated_topology_epoch: int = 1
) -> list[CoordinatorRecord]:
    """Return the records of a group at epoch 10, without a member if it has no epoch."""
    value = StreamsGroupMetadataValue(epoch=10, validated_topology_epoch=validated_topology_epoch)
    records = [
        CoordinatorRecord(StreamsGroupMetadataKey(group_id), value),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id), StreamsGroupTopologyValue(epoch=1)),
        target_epoch_record(group_id, target_epoch, 1),
    ]
    if member_epoch is not None:
        member = StreamsMember("m", member_epoch=member_epoch, previous_member_epoch=member_epoch - 1)
        records += [member_record(group_id, member), current_record(group_id, member)]
    return records


def counted(shard: GroupShard, kind: str = "streams") -> dict[str, float]:
    """Return the groups of a kind by state, and in all."""
    coordinator = cast("Any", SimpleNamespace(active_shards=lambda: [shard]))
    found = {}
    for gauge in group_gauges(coordinator, cast("Any", None)):
        if gauge is None or gauge.group != GROUP_COORDINATOR:
            continue
        if gauge.name == f"{kind}-group-count" or gauge.tags == (("protocol", kind),):
            ((_, tag),) = gauge.tags
            found[tag] = gauge.value
    return found


def test_streams_groups_are_counted_by_their_state() -> None:
    shard = StreamsShard(image_of())
    shard.load(
        *group("empty", 10, None),
        *group("stable", 10, 10),
        *group("assigning", 9, 9),
        *group("reconciling", 10, 9),
        *group("not ready", 10, 1, validated_topology_epoch=-1),
    )
    each_once = {"Empty": 1, "NotReady": 1, "Assigning": 1, "Reconciling": 1, "Stable": 1}
    assert counted(shard.shard) == {"streams": 5, "Dead": 0, **each_once}
    reconciled = StreamsMember("m", member_epoch=10, previous_member_epoch=9)
    shard.load(*member_tombstones("stable", "m"), current_record("reconciling", reconciled))
    assert counted(shard.shard) == {"streams": 5, "Dead": 0, **each_once, "Empty": 2, "Reconciling": 0}


def test_consumer_groups_are_counted_by_their_state() -> None:
    world = GroupWorld()
    for group_id, target_epoch, member_epoch in (("a", 10, None), ("b", 10, 10), ("c", 9, 9), ("d", 10, 9)):
        records = [epoch_record(group_id, 10, 0), consumer_target_record(group_id, target_epoch, 1)]
        if member_epoch is not None:
            records.append(consumer_record(group_id, ConsumerMember("m", member_epoch=member_epoch)))
        world.load(*records)

    each_once = {"Empty": 1, "Stable": 1, "Assigning": 1, "Reconciling": 1}
    assert counted(world.shard, "consumer") == {"consumer": 4, "Dead": 0, **each_once}


def test_classic_groups_are_counted_by_their_state() -> None:
    world = ClassicWorld()
    for number in range(4):
        world.new_id(group_id=f"g{number}")
    others = {"PreparingRebalance": 0, "CompletingRebalance": 0, "Stable": 0, "Dead": 0}
    assert counted(world.shard, "classic") == {"classic": 4, "Empty": 4, **others}

    path = [ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE]
    for number in range(1, 4):
        group = world.shard.groups[f"g{number}"]
        assert isinstance(group, ClassicGroup)
        for state in path[:number]:
            group.log.transition_to(state)
    each_once = {"Empty": 1, "PreparingRebalance": 1, "CompletingRebalance": 1, "Stable": 1}
    assert counted(world.shard, "classic") == {"classic": 4, "Dead": 0, **each_once}


def test_each_event_has_its_count_and_its_rate() -> None:
    counts = GroupCounts()
    counts.offset_commits = 3
    gauges = {gauge.name: gauge for gauge in event_gauges(counts, Rates(0.0))}
    assert set(EVENTS.values()) == set(GroupCounts.__slots__)
    assert gauges.keys() == {f"{name}-{figure}" for name in EVENTS for figure in ("rate", "count")}
    assert gauges["offset-commit-count"] == (GROUP_COORDINATOR, "offset-commit-count", 3, (), True)
    assert gauges["offset-commit-rate"].value > 0 == gauges["offset-deletion-rate"].value
