"""Placing the replicas of new partitions: striped over racks, then over the brokers of each rack.

The first replica is on an unfenced broker. Leaders and followers are assigned to the racks in turn, so that every rack
and broker gets its share; no broker gets two replicas of a partition. Starting points are random. Source: the contract
of Kafka's StripedReplicaPlacer (KIP-631).
"""

from collections.abc import Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Random

_EXHAUSTED: Final = -1


class UsableBroker(NamedTuple):
    """A registered broker that may get replicas; a fenced one is used only after all unfenced ones."""

    id: int
    rack: str | None
    fenced: bool


def place_replicas(
    brokers: Iterable[UsableBroker], *, partition_count: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """Return the replicas of each new partition, the preferred leader first.

    Raises ApiError INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    usable = list(brokers)
    if replication_factor == len(usable) == 1 and not usable[0].fenced:  # as on each single node: nothing to choose
        return [[usable[0].id] for _ in range(partition_count)]
    racks = _RackRing(usable, random)
    racks.check(replication_factor)
    return [racks.place(replication_factor) for _ in range(partition_count)]


class _BrokerRing:
    """Brokers of one rack in one state, assigned in turn; each partition starts one broker after the previous one."""

    def __init__(self, brokers: list[int], random: Random) -> None:
        self._brokers = sorted(brokers)
        self._offset = random.randrange(0, len(brokers)) if brokers else 0
        self._taken = 0
        self._round = 0

    def next(self, round_number: int) -> int:
        """Return the next broker of this partition's round, or _EXHAUSTED if all have been assigned."""
        if not self._brokers:
            return _EXHAUSTED
        if self._round != round_number:
            self._round, self._taken = round_number, 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._taken == len(self._brokers):
            return _EXHAUSTED
        self._taken += 1
        return self._brokers[(self._offset + self._taken - 1) % len(self._brokers)]

    def shuffle(self, random: Random) -> None:
        _shuffle(self._brokers, random)


class _Rack:
    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.unfenced = _BrokerRing([broker.id for broker in brokers if not broker.fenced], random)
        self.fenced = _BrokerRing([broker.id for broker in brokers if broker.fenced], random)

    def next(self, round_number: int) -> int:
        broker_id = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker_id == _EXHAUSTED else broker_id


class _RackRing:
    """All racks, used in turn. A round is one partition."""

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], random) for name in names]
        self._random = random
        self._broker_count = len(brokers)
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._round = 0
        self._offset = random.randrange(0, len(names)) if names else 0

    def check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            raise _refused(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
        if self._unfenced_count == 0:
            raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
        if replication_factor > self._broker_count:
            raise _refused(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._broker_count} broker(s) are registered or some brokers have all their log directories "
                "cordoned."
            )

    def place(self, replication_factor: int) -> list[int]:
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
        self._offset %= len(self._racks)
        leader, leader_rack = self._next_leader()
        replicas = [leader]
        rack = self._offset
        is_leader_rack_due = True
        while len(replicas) < replication_factor:
            if rack == leader_rack and is_leader_rack_due:
                is_leader_rack_due = False
            else:
                broker_id = self._racks[rack].next(self._round)
                if broker_id != _EXHAUSTED:
                    replicas.append(broker_id)
            rack = (rack + 1) % len(self._racks)
        self._round += 1
        self._offset += 1
        assert len(set(replicas)) == replication_factor, f"two replicas on one broker: {replicas}"
        return replicas

    def _next_leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            rack = (self._offset + step) % len(self._racks)
            broker_id = self._racks[rack].unfenced.next(self._round)
            if broker_id != _EXHAUSTED:
                return broker_id, rack
        raise AssertionError("check() has seen a broker that is up")

    def _shuffle(self) -> None:
        """Draw a new random order after every broker has led, so that leaders get different followers."""
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            rack.unfenced.shuffle(self._random)
            rack.fenced.shuffle(self._random)
        self._round = 0


def _shuffle(items: list[int] | list[_Rack], random: Random) -> None:
    for index in range(len(items) - 1, 0, -1):
        other = random.randrange(0, index + 1)
        items[index], items[other] = items[other], items[index]  # type: ignore[assignment]


def _refused(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
