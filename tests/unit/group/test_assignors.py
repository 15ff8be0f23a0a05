"""The assignors by their promises: balance, stickiness, ranges; on examples and on random groups."""

from random import Random

import pytest

from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.assignors.range import assign_ranges
from kafkapy.group.assignors.spec import Assignment, GroupAssignment, GroupSpec, MemberSpec
from kafkapy.group.assignors.uniform import assign_uniformly
from kafkapy.types import Uuid

FOO, BAR, BAZ = (name.encode().ljust(16) for name in ("foo", "bar", "baz"))


def spec_of(counts: dict[Uuid, int], *, assigned: GroupAssignment | None = None, **topics: set[Uuid]) -> GroupSpec:
    members = {
        member_id: MemberSpec(frozenset(ids), None, (assigned or {}).get(member_id, {}))
        for member_id, ids in topics.items()
    }
    return GroupSpec(members, counts, len({member.topic_ids for member in members.values()}) <= 1)


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def moved_count(before: GroupAssignment, after: GroupAssignment) -> int:
    """Count the partitions that a member had and no longer has."""
    return sum(
        len(partitions - after.get(member_id, {}).get(topic_id, frozenset()))
        for member_id, assignment in before.items()
        for topic_id, partitions in assignment.items()
    )


def test_ranges_are_consecutive_and_the_first_ones_longer() -> None:
    assigned = assign_ranges(spec_of({FOO: 7, BAR: 7}, a={FOO, BAR}, b={FOO, BAR}, c={FOO, BAR}))

    for topic_id in (FOO, BAR):
        assert assigned["a"][topic_id] == {0, 1, 2}
        assert assigned["b"][topic_id] == {3, 4}
        assert assigned["c"][topic_id] == {5, 6}


def test_range_leaves_members_out_where_partitions_are_few() -> None:
    assigned = assign_ranges(spec_of({FOO: 1}, a={FOO}, b={FOO}))

    assert assigned == {"a": {FOO: frozenset({0})}, "b": {}}


def test_range_counts_a_topics_own_subscribers() -> None:
    assigned = assign_ranges(spec_of({FOO: 2, BAR: 2}, a={FOO}, b={FOO, BAR}))

    assert assigned == {"a": {FOO: frozenset({0})}, "b": {FOO: frozenset({1}), BAR: frozenset({0, 1})}}


def test_range_puts_static_members_first_by_instance_id() -> None:
    members = {
        "a": MemberSpec(frozenset({FOO})),
        "b": MemberSpec(frozenset({FOO}), "z-instance"),
        "c": MemberSpec(frozenset({FOO}), "a-instance"),
    }

    assigned = assign_ranges(GroupSpec(members, {FOO: 3}, True))

    assert assigned == {"c": {FOO: frozenset({0})}, "b": {FOO: frozenset({1})}, "a": {FOO: frozenset({2})}}


def test_uniform_spreads_over_topics() -> None:
    assigned = assign_uniformly(
        spec_of({FOO: 3, BAR: 3, BAZ: 2}, a={FOO, BAR, BAZ}, b={FOO, BAR, BAZ}, c={FOO, BAR, BAZ})
    )

    assert sorted(map(size, assigned.values())) == [2, 3, 3]


def test_uniform_takes_only_what_a_new_member_is_due() -> None:
    before = assign_uniformly(spec_of({FOO: 6}, a={FOO}, b={FOO}))
    after = assign_uniformly(spec_of({FOO: 6}, assigned=before, a={FOO}, b={FOO}, c={FOO}))

    assert sorted(map(size, after.values())) == [2, 2, 2]
    assert moved_count(before, after) == 2


def test_uniform_leaves_a_balanced_group_as_it_is() -> None:
    before = {"a": {FOO: frozenset({1, 4})}, "b": {FOO: frozenset({0, 2, 3})}}

    assert assign_uniformly(spec_of({FOO: 5}, assigned=before, a={FOO}, b={FOO})) == before


def test_uniform_drops_topics_that_nobody_subscribes_to_any_more() -> None:
    before = {"a": {FOO: frozenset({0, 1}), BAR: frozenset({0})}}

    assert assign_uniformly(spec_of({FOO: 2}, assigned=before, a={FOO})) == {"a": {FOO: frozenset({0, 1})}}


def test_uniform_evens_out_different_subscriptions() -> None:
    assigned = assign_uniformly(spec_of({FOO: 4, BAR: 4}, a={FOO}, b={FOO, BAR}, c={BAR}))

    assert sorted(map(size, assigned.values())) == [2, 3, 3]


def test_uniform_without_topics_assigns_nothing() -> None:
    assert assign_uniformly(spec_of({}, a=set(), b=set())) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(60))
def test_every_partition_has_one_owner_among_its_subscribers(name: str, seed: int) -> None:
    random = Random(seed)
    topic_ids = [random.randbytes(16) for _ in range(random.randint(1, 6))]
    counts = {topic_id: random.randint(1, 12) for topic_id in topic_ids}
    assigned: GroupAssignment = {}
    members: dict[str, set[Uuid]] = {}
    for _ in range(8):
        for index in range(random.randint(1, 6)):
            wanted = set(random.sample(topic_ids, random.randint(1, len(topic_ids))))
            members[f"m{index}"] = wanted if seed % 2 else set(topic_ids)
        if len(members) > 2 and random.random() < 0.5:
            del members[random.choice(sorted(members))]
        subscribed = set().union(*members.values())
        spec = spec_of({topic_id: counts[topic_id] for topic_id in subscribed}, assigned=assigned, **members)
        assigned = ASSIGNORS[name](spec)
        owned = [
            (topic_id, partition)
            for member_id, assignment in assigned.items()
            for topic_id, partitions in assignment.items()
            for partition in partitions
            if topic_id in members[member_id]
        ]
        assert sorted(owned) == sorted(
            (topic_id, partition) for topic_id in subscribed for partition in range(counts[topic_id])
        )
        if name == "uniform" and spec.is_homogeneous:
            sizes = [size(assigned.get(member_id, {})) for member_id in members]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(30))
def test_uniform_leaves_no_topic_out_of_balance_among_its_subscribers(seed: int) -> None:
    random = Random(seed)
    counts = {random.randbytes(16): random.randint(1, 20) for _ in range(4)}
    members = {f"m{index}": set(random.sample(sorted(counts), random.randint(1, 4))) for index in range(6)}
    subscribed = set().union(*members.values())
    spec = spec_of({topic_id: counts[topic_id] for topic_id in subscribed}, **members)

    assigned = assign_uniformly(spec)

    for topic_id in subscribed:
        subscribers = [member_id for member_id, topics in members.items() if topic_id in topics]
        least = min(size(assigned[member_id]) for member_id in subscribers)
        givers = [member_id for member_id in subscribers if assigned[member_id].get(topic_id)]
        assert all(size(assigned[member_id]) - least <= 1 for member_id in givers)


def test_a_thousand_partitions_for_a_hundred_members_stay_balanced_and_put() -> None:
    topics = {bytes([index]) * 16: 100 for index in range(10)}
    members = {f"m{index:03}": set(topics) for index in range(100)}
    before = assign_uniformly(spec_of(topics, **members))
    del members["m050"]

    after = assign_uniformly(spec_of(topics, assigned=before, **members))

    assert {size(assignment) for assignment in after.values()} == {10, 11}
    del before["m050"]  # type: ignore[attr-defined]
    assert moved_count(before, after) == 0
