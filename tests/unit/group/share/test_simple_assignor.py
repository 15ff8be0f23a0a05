"""The steps of the assignor of share groups: none looks at many partitions, whatever members subscribe to and have."""

from typing import Any

import pytest

from kafkapy.group.share.simple_assignor import KEYS_PER_STEP, ShareGroupSpec, ShareMemberSpec, assign_steps
from kafkapy.types import Uuid


class Counted(dict[Uuid, tuple[int, ...]]):
    """A target that counts how often the targets of all members are read."""

    read_count = 0

    def get(self, key: Any, default: Any = None) -> Any:
        Counted.read_count += 1
        return super().get(key, default)


def topic(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def longest_step(spec: ShareGroupSpec) -> int:
    """Return how often targets are read in a step, at most."""
    longest, before = 0, Counted.read_count
    steps = assign_steps(spec)
    while True:
        try:
            next(steps)
        except StopIteration:
            return max(longest, Counted.read_count - before)
        longest, before = max(longest, Counted.read_count - before), Counted.read_count


@pytest.mark.parametrize(("subscribed", "held"), [(200, 0), (1, 500)], ids=["topics without states", "wide targets"])
def test_members_of_different_topics_are_assigned_in_small_steps(subscribed: int, held: int) -> None:
    topics = list(map(topic, range(subscribed)))
    members = {
        str(number): ShareMemberSpec(
            frozenset(topics[number % 2 :]), Counted({topic(1_000 + each): (0,) for each in range(held)})
        )
        for number in range(60)
    }
    before = Counted.read_count
    longest = longest_step(ShareGroupSpec(members, {each: [] for each in topics}, is_homogeneous=False))
    assert Counted.read_count - before >= 60 * max(subscribed, held)
    assert longest <= 2 * KEYS_PER_STEP
