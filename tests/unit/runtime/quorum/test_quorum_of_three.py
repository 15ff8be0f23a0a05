"""The quorum's driver in virtual time: three voters over a fake network."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest
from kafkapy.raft.voters import VoterSet
from kafkapy.runtime.quorum.quorum import NotLeaderError, Quorum
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run
from tests.support.log_records import recorded
from tests.support.quorums import (
    FakeTransport,
    ValueList,
    append,
    format_standalone,
    local_voter,
    new_quorum,
)

SMALL = QuorumConfig(
    internal_metadata_log_segment_bytes=600,
    metadata_log_max_record_bytes_between_snapshots=500,
    metadata_max_retention_bytes=1500,
    internal_metadata_delete_delay_millis=0,
)


class Cluster:
    """Quorums on disks of their own, joined by a fake network."""

    def __init__(self, loop: SimLoop, *node_ids: int, config: QuorumConfig | None = None) -> None:
        self.loop = loop
        self.config = config or QuorumConfig()
        self.voters = VoterSet(map(local_voter, node_ids))
        self.disks = {node_id: SimDisk() for node_id in node_ids}
        for disk in self.disks.values():
            format_standalone(disk, self.voters)
        self.quorums: dict[int, Quorum] = {}
        self.listeners: dict[int, ValueList] = {}
        self.transports: dict[int, FakeTransport] = {}
        self.fatal: list[BaseException] = []

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.disks):
            listener = self.listeners[node_id] = ValueList()
            transport = self.transports[node_id] = FakeTransport(self.loop, node_id, self.quorums)
            quorum = new_quorum(
                self.loop,
                self.disks.setdefault(node_id, SimDisk()),
                node_id=node_id,
                listener=listener,
                transport=transport,
                config=self.config,
                on_fatal=self.fatal.append,
                bootstrap_ids=self.voters.ids,
            )
            self.quorums[node_id] = quorum
            await quorum.start()

    async def leader(self) -> Quorum:
        for _ in range(10_000):
            for node_id, quorum in self.quorums.items():
                if quorum.is_leader and (node_id, quorum.leader_epoch) in self.listeners[node_id].leaders:
                    return quorum
            await asyncio.sleep(0.01)
        raise AssertionError("no leader")

    async def all_have(self, values: list[bytes]) -> None:
        for _ in range(3000):
            if all(self.listeners[node_id].values == values for node_id in self.quorums):
                return
            await asyncio.sleep(0.01)
        held = {node_id: self.listeners[node_id].values for node_id in self.quorums}
        raise AssertionError(f"{held}, {self.fatal}")

    async def stop(self, node_id: int) -> None:
        await self.quorums.pop(node_id).close()

    async def close(self) -> None:
        assert not self.fatal
        for node_id in list(self.quorums):
            await self.stop(node_id)


def in_cluster(
    *node_ids: int, config: QuorumConfig | None = None
) -> Callable[[Callable[[Cluster], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a coroutine over a started cluster."""

    def decorate(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
        def run_test() -> None:
            async def main(loop: SimLoop) -> None:
                cluster = Cluster(loop, *node_ids, config=config)
                await cluster.start()
                await test(cluster)
                await cluster.close()

            run(main)

        return run_test

    return decorate


@in_cluster(1, 2, 3)
async def test_three_voters_hold_the_same_log(cluster: Cluster) -> None:
    leader = await cluster.leader()
    values = [b"%d" % number for number in range(20)]
    for value in values:
        await append(leader, value)
    await cluster.all_have(values)
    description = leader.describe()
    assert description is not None
    assert {voter.key.node_id for voter in description.voters} == {1, 2, 3}
    assert all(voter.last_caught_up_timestamp_ms > 0 for voter in description.voters)


def syncs_of_a_load(linger_ms: int) -> list[int]:
    """Return how often each of three voters, the leader first, syncs its log while 1,000 records come in a second."""
    counts: list[int] = []

    @in_cluster(1, 2, 3, config=QuorumConfig(controller_quorum_append_linger_ms=linger_ms))
    async def load(cluster: Cluster) -> None:
        leader = await cluster.leader()
        await append(leader, b"first")
        syncs: dict[int, list[str]] = {node_id: [] for node_id in cluster.disks}
        for node_id, disk in cluster.disks.items():
            disk.hook = lambda operation, path, to=syncs[node_id]: to.append(path) if operation == "sync" else None
        for _ in range(1000):
            leader.append([b"v"], leader.leader_epoch)
            await asyncio.sleep(0.001)
        await cluster.all_have([b"first", *[b"v"] * 1000])
        order = sorted(syncs, key=lambda node_id: node_id != leader.node_id)
        counts.extend(len([path for path in syncs[node_id] if path.endswith(".log")]) for node_id in order)

    load()
    return counts


def test_the_linger_of_appends_decides_how_often_each_voter_syncs_under_load() -> None:
    without, short, default = (syncs_of_a_load(linger_ms) for linger_ms in (0, 10, 25))
    assert min(without) > 200
    assert all(20 <= count <= 90 for count in default), default
    assert all(low < high < most for low, high, most in zip(default, short, without, strict=True)), (default, short)


@in_cluster(1, 2, 3)
async def test_another_voter_takes_over_when_the_leader_stops(cluster: Cluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"before")
    await cluster.stop(leader.node_id)
    follower = await cluster.leader()
    assert follower.leader_epoch > leader.leader_epoch
    await append(follower, b"after")
    await cluster.start(leader.node_id)
    await cluster.all_have([b"before", b"after"])


@in_cluster(1, 2, 3)
async def test_a_leader_without_room_leaves_the_append_to_a_voter_that_has_some(cluster: Cluster) -> None:
    leader = await cluster.leader()
    disk = cluster.disks[leader.node_id]
    disk.capacity_bytes = disk.used_bytes() + (64 << 10)  # enough to follow
    with pytest.raises(NotLeaderError):  # brokers send it to the next active controller
        await append(leader, b"refused")
    await leader.wait_until(lambda: leader.leader_id not in (-1, leader.node_id))
    await append(await cluster.leader(), b"written")
    await cluster.all_have([b"written"])


@in_cluster(1)
async def test_a_sole_voter_without_room_goes_on_leading(cluster: Cluster) -> None:
    leader = await cluster.leader()
    disk = cluster.disks[1]
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(ApiError):
        await append(leader, b"refused")
    disk.capacity_bytes = None
    await append(leader, b"written")
    assert leader.is_leader


@in_cluster(1, 2, 3)
async def test_a_voter_without_any_room_waits_for_some_and_comes_back(cluster: Cluster) -> None:
    """Another process may use what the reserve gave up; it must write the epoch of the next election nevertheless."""
    leader = await cluster.leader()
    await append(leader, b"before")
    full = next(quorum for quorum in cluster.quorums.values() if not quorum.is_leader)
    disk = cluster.disks[full.node_id]
    disk.capacity_bytes = disk.used_bytes()
    leader.resign(leader.leader_epoch)
    await leader.wait_until(lambda: leader.leader_id == -1)
    leader = await cluster.leader()
    assert leader is not full, "it could not write its vote"
    await append(leader, b"after")
    await asyncio.sleep(30)
    assert cluster.listeners[full.node_id].values == [b"before"]
    assert leader.is_leader, "a voter that waits calls no elections"
    disk.capacity_bytes = None
    await cluster.all_have([b"before", b"after"])


@in_cluster(1, 2, 3)
async def test_a_flush_without_room_for_the_epochs_is_tried_again(cluster: Cluster) -> None:
    leader = await cluster.leader()
    full = next(quorum for quorum in cluster.quorums.values() if not quorum.is_leader)
    disk = cluster.disks[full.node_id]
    disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint", times=1 << 30)
    with recorded(logging.WARNING) as records:
        leader.resign(leader.leader_epoch)
        await leader.wait_until(lambda: leader.leader_id == -1)
        leader = await cluster.leader()
        await append(leader, b"written")
        await asyncio.sleep(10)
        assert full.log.recovery_point < full.log_end_offset
        disk.heal()
        await cluster.all_have([b"written"])
        await asyncio.sleep(10)
    assert full.log.recovery_point == full.log_end_offset
    said = [record.getMessage() for record in records if "room on the disk" in record.getMessage()]
    assert [text.partition(" the disk")[0] for text in said] == [
        "The flush of the metadata log waits for room on",
        "The flush of the metadata log goes on: there is room on",
    ]


@in_cluster(1, 2, 3)
async def test_a_quorum_that_has_failed_writes_nothing_more(cluster: Cluster) -> None:
    """What waits for room is not written, should there be some: the node stops."""
    leader = await cluster.leader()
    full = next(quorum for quorum in cluster.quorums.values() if not quorum.is_leader)
    disk = cluster.disks[full.node_id]
    disk.fail("write", errno.ENOSPC, path=".log", times=1 << 30)
    await append(leader, b"written")
    await asyncio.sleep(1)
    full._fail(StorageError("/logs", "a flush has failed"))
    assert len(cluster.fatal) == 1
    end_offset = full.log.log_end_offset
    disk.heal()
    await asyncio.sleep(10)
    assert full.log.log_end_offset == end_offset
    cluster.fatal.clear()


@in_cluster(1, 2, 3)
async def test_flushes_without_room_are_tried_by_one_timer_and_logged_once(cluster: Cluster) -> None:
    leader = await cluster.leader()
    full = next(quorum for quorum in cluster.quorums.values() if not quorum.is_leader)
    disk = cluster.disks[full.node_id]
    disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint", times=200)
    with recorded(logging.WARNING) as records:
        leader.resign(leader.leader_epoch)
        await leader.wait_until(lambda: leader.leader_id == -1)
        leader = await cluster.leader()
        for number in range(20):
            await append(leader, b"%d" % number)
            await asyncio.sleep(0.5)
        assert full.log.leader_epochs.is_dirty, "the tries of ten seconds are fewer than 200"
        disk.heal()
        await leader.wait_until(lambda: not full.log.leader_epochs.is_dirty)
        await asyncio.sleep(1)
    assert [record.getMessage().split(":")[0] for record in records if "The flush" in record.getMessage()] == [
        "The flush of the metadata log waits for room on the disk",
        "The flush of the metadata log goes on",
    ]


@in_cluster(1, 2, 3)
async def test_a_leader_that_loses_its_last_room_amid_an_append_leaves_it_to_another(cluster: Cluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"before")
    disk = cluster.disks[leader.node_id]
    disk.fail("write", errno.ENOSPC, times=1 << 30)  # used by another process after the look for room
    leader.append([b"waits"], leader.leader_epoch)
    with pytest.raises(NotLeaderError):
        leader.append([b"refused"], leader.leader_epoch)
    assert isinstance(leader.kraft_upgrade_refusal(), NotLeaderError)
    del cluster.quorums[leader.node_id]
    follower = await cluster.leader()
    cluster.quorums[leader.node_id] = leader
    await append(follower, b"written")
    disk.heal()
    await cluster.all_have([b"before", b"written"])


@in_cluster(1, 2, 3)
async def test_what_a_cut_off_leader_appended_is_taken_back(cluster: Cluster) -> None:
    former = await cluster.leader()
    for transport in cluster.transports.values():
        transport.cut_off = {former.node_id}
    former.append([b"lost"], former.leader_epoch)
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if not former.is_leader:
            break
    leader = await cluster.leader()
    await append(leader, b"kept")
    for transport in cluster.transports.values():
        transport.cut_off = set()
    await cluster.all_have([b"kept"])
    assert cluster.listeners[former.node_id].leaders[-1] == (leader.node_id, leader.leader_epoch)


@in_cluster(1, 2, 3, config=SMALL)
async def test_a_voter_that_was_away_starts_from_a_snapshot(cluster: Cluster) -> None:
    leader = await cluster.leader()
    away = next(node_id for node_id in cluster.quorums if node_id != leader.node_id)
    await cluster.stop(away)
    values = [b"%020d" % number for number in range(60)]
    for value in values:
        await append(leader, value)
    await asyncio.sleep(1)
    assert leader.log_start_offset > 3
    await cluster.start(away)
    await cluster.all_have(values)
    assert cluster.listeners[away].loaded[-1].offset >= leader.log_start_offset
    await append(leader, b"more")
    await cluster.all_have([*values, b"more"])
    await cluster.stop(away)
    await cluster.start(away)
    await cluster.all_have([*values, b"more"])


@pytest.mark.parametrize("operation", ["sync", "rename"])
def test_a_downloaded_snapshot_without_room_is_downloaded_again(operation: str) -> None:
    """An fsync finds the disk full if the file system allocates late; a rename, if the directory has to grow."""

    @in_cluster(1, 2, 3, config=SMALL)
    async def main(cluster: Cluster) -> None:
        leader = await cluster.leader()
        away = next(node_id for node_id in cluster.quorums if node_id != leader.node_id)
        await cluster.stop(away)
        values = [b"%020d" % number for number in range(60)]
        for value in values:
            await append(leader, value)
        await asyncio.sleep(1)
        disk = cluster.disks[away]
        disk.fail(operation, errno.ENOSPC, path=".part", times=1 << 30)
        with recorded(logging.WARNING) as records:
            await cluster.start(away)
            await asyncio.sleep(30)
        assert 2 <= sum("No room for a metadata snapshot" in record.getMessage() for record in records) < 100
        disk.heal()
        await cluster.all_have(values)
        assert cluster.listeners[away].loaded[-1].offset >= leader.log_start_offset

    main()


@in_cluster(1, 2, 3, config=SMALL)
async def test_a_log_that_begins_anew_at_a_snapshot_waits_for_room(cluster: Cluster) -> None:
    """Its new segment is a new name in the directory, which may have to grow for it."""
    leader = await cluster.leader()
    away = next(node_id for node_id in cluster.quorums if node_id != leader.node_id)
    await cluster.stop(away)
    values = [b"%020d" % number for number in range(60)]
    for value in values:
        await append(leader, value)
    await asyncio.sleep(1)
    disk = cluster.disks[away]
    disk.fail("create", errno.ENOSPC, path=".log", times=1 << 30)
    await cluster.start(away)
    await asyncio.sleep(10)
    assert cluster.quorums[away].effects.waited_ms > 5000
    disk.heal()
    await cluster.all_have(values)
    assert cluster.listeners[away].loaded[-1].offset >= leader.log_start_offset


@in_cluster(1, 2, 3)
async def test_a_truncation_waits_for_room(cluster: Cluster) -> None:
    """A file system that copies on write needs room for it."""
    former = await cluster.leader()
    for transport in cluster.transports.values():
        transport.cut_off = {former.node_id}
    former.append([b"lost"], former.leader_epoch)
    disk = cluster.disks[former.node_id]
    disk.fail("truncate", errno.ENOSPC, path=".log", times=1 << 30)
    del cluster.quorums[former.node_id]
    await former.wait_until(lambda: former.leader_id == -1)
    leader = await cluster.leader()
    await append(leader, b"kept")
    cluster.quorums[former.node_id] = former
    for transport in cluster.transports.values():
        transport.cut_off = set()
    await asyncio.sleep(10)
    assert former.effects.waited_ms > 5000
    disk.heal()
    await cluster.all_have([b"kept"])


@in_cluster(1, 2, 3)
async def test_a_voter_is_added_and_another_removed(cluster: Cluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"x")
    await cluster.start(4)
    await cluster.all_have([b"x"])
    await asyncio.sleep(1)
    responses: list[Any] = []
    leader.receive(AddVoterRequest(voter=local_voter(4), timeout_ms=1000), responses.append)
    await leader.wait_until(lambda: bool(responses))
    assert responses[0].error == 0
    leader.receive(RemoveVoterRequest(voter=local_voter(leader.node_id).key), responses.append)
    await leader.wait_until(lambda: len(responses) == 2)
    await leader.wait_until(lambda: not leader.is_leader)
    other = await cluster.leader()
    assert other.voters.ids == tuple({1, 2, 3, 4} - {leader.node_id})
    await append(other, b"y")
    await cluster.all_have([b"x", b"y"])
