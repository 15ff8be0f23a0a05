"""A share group of thousands of partitions: its target is computed in turns, once, and is the one computed at once."""

import asyncio

import pytest

from kafkapy.group.long_work import LongWorkError, Results
from kafkapy.group.share import target
from kafkapy.group.share.states import NO_STATES
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.runtime.coordinators import long_decisions
from tests.simulator.loop import SimLoop
from tests.support.consumer_groups import CLIENT, image_of
from tests.support.share_groups import ShareWorld, assigned
from tests.support.share_hosting import ShareHosting
from tests.support.steps import counted
from tests.unit.handlers.share.test_membership import hosting_of
from tests.unit.runtime.broker.test_isr_updates import pass_ms

MANY = 10_000


def with_states(member_ids: str = "ab") -> ShareWorld:
    world = ShareWorld(image_of(foo=MANY))
    for member_id in member_ids:
        world.join(member_id, "foo")
    world.initialize()
    return world


def test_steps_are_many_and_lead_to_what_is_computed_at_once() -> None:
    at_once = with_states()
    expected = assigned(at_once.heartbeat("a", 2))
    world = with_states()
    with pytest.raises(LongWorkError) as raised:
        world.shard.share.heartbeat(*heartbeat_of(world, "a"), gives_way=True)
    assert world.log().assignment_epoch == world.log().group_epoch, "nothing has changed"
    count, computed = counted(raised.value.work.steps())
    results = Results()
    results.keep(raised.value.work, computed)
    assert count >= 10
    decision = world.shard.share.heartbeat(*heartbeat_of(world, "a"), gives_way=True, results=results)
    assert assigned(decision.response) == expected
    world.commit(decision)
    assert world.log().targets == at_once.log().targets


@pytest.mark.parametrize(("topic_count", "is_large"), [(10, False), (60, True)])
def test_members_that_subscribe_to_many_different_topics_have_their_target_computed_in_steps(
    topic_count: int, is_large: bool
) -> None:
    """Also before any of these topics has a state."""
    names = [f"t{number}" for number in range(topic_count)]
    subscriptions = {f"m{number}": frozenset(names[number % 2 :]) for number in range(100)}
    topics = image_of(**dict.fromkeys(names, 1)).topics
    wanted = target.TargetInput(subscriptions, {}, NO_STATES, topics, is_homogeneous=False, topic_count=topic_count)
    assert wanted.is_large == is_large
    count, computed = counted(wanted.steps())
    assert count >= 100 * topic_count // target.KEYS_PER_STEP
    assert computed == {member_id: {} for member_id in subscriptions}


def heartbeat_of(world: ShareWorld, member_id: str) -> tuple[object, ...]:
    epoch = world.log().members[member_id].member_epoch
    request = ShareGroupHeartbeatRequest("g", member_id=member_id, member_epoch=epoch, subscribed_topic_names=None)
    return request, CLIENT, world.groups_world.now_ms


def test_a_target_that_was_prepared_for_something_else_is_not_taken() -> None:
    world = with_states()
    with pytest.raises(LongWorkError) as raised:
        world.shard.share.heartbeat(*heartbeat_of(world, "a"), gives_way=True)
    before, results = raised.value.work, Results()
    world.heartbeat("b", -1)
    results.keep(before, {"a": {}, "b": {}})
    with pytest.raises(LongWorkError):
        world.shard.share.heartbeat(*heartbeat_of(world, "a"), gives_way=True, results=results)
    assert assigned(world.heartbeat("a", 2)) == {"foo": list(range(MANY))}


async def test_heartbeats_that_need_the_same_large_target_share_one_computation(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosting, computed = await joined(loop, monkeypatch)
    responses = await asyncio.gather(hosting.heartbeat("a", 2), hosting.heartbeat("b", 2))
    assert len(computed) == 1
    assert [len(each.assignment.topic_partitions[0].partitions) for each in responses] == [1_000, 1_000]


async def test_a_group_that_changes_while_its_target_is_computed_has_it_computed_again(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosting, computed = await joined(loop, monkeypatch)
    beating = asyncio.ensure_future(hosting.heartbeat("a", 2))
    await asyncio.sleep(0.001)
    assert (await hosting.heartbeat("b", -1)).member_epoch == -1
    response = await beating
    assert len(computed) == 2
    assert response.assignment is not None
    assert [len(each.partitions) for each in response.assignment.topic_partitions] == [2_000]


async def joined(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> tuple[ShareHosting, list[target.TargetInput]]:
    """Return a broker whose group of "a" and "b" needs a target, and the inputs of all computations in turns."""
    computed: list[target.TargetInput] = []

    def observed(wanted: target.TargetInput) -> object:
        computed.append(wanted)
        return wanted.steps()

    monkeypatch.setattr(long_decisions, "steps_of", observed)
    hosting = hosting_of(loop, 2_000)
    for each in "ab":
        await hosting.heartbeat(each, 0, ["orders"])
    await pass_ms(loop, 2_000)
    assert computed == []
    return hosting, computed
