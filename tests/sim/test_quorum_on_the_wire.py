"""Three controllers whose messages are Apache Kafka's requests over a network: elections, snapshots, voters."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.errors import StorageError
from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest, Response, VoteRequest, VoteResponse
from kafkapy.raft.roles import LAST_EPOCH
from kafkapy.raft.voters import VoterSet
from kafkapy.runtime.quorum.quorum import Quorum
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, AllowAll
from kafkapy.server.quorum_node import GOODBYE_S
from kafkapy.types import OffsetAndEpoch, ReplicaKey
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run
from tests.simulator.wired_quorum import WiredCluster, WiredNode, voter_of
from tests.support.metadata_services import Deny

SMALL = QuorumConfig(
    internal_metadata_log_segment_bytes=600,
    metadata_log_max_record_bytes_between_snapshots=500,
    metadata_max_retention_bytes=1500,
    internal_metadata_delete_delay_millis=0,
    controller_quorum_fetch_snapshot_max_bytes=300,
)


def wired(
    *node_ids: int, config: QuorumConfig | None = None
) -> Callable[[Callable[[WiredCluster], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a coroutine over a started cluster."""

    def decorate(test: Callable[[WiredCluster], Awaitable[None]]) -> Callable[[], None]:
        def run_test() -> None:
            async def main(loop: SimLoop) -> None:
                cluster = WiredCluster(loop, *node_ids, config=config)
                await cluster.start()
                await test(cluster)
                await cluster.stop()
                assert not cluster.fatal

            run(main)

        return run_test

    return decorate


async def append(quorum: Quorum, *values: bytes) -> None:
    offset = quorum.append(list(values), quorum.leader_epoch)
    await quorum.wait_until(lambda: quorum.high_watermark > offset)


async def send_request(quorum: Quorum, request: AddVoterRequest | RemoveVoterRequest | VoteRequest) -> Response:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    quorum.receive(request, answered.set_result)
    return await answered


@wired(1, 2, 3)
async def test_three_voters_elect_a_leader_and_hold_the_same_log(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    values = [b"%d" % number for number in range(20)]
    for value in values:
        await append(leader, value)
    await cluster.all_have(values)


@wired(1, 2, 3)
async def test_another_voter_takes_over_when_the_leader_stops(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    leader_epoch = leader.leader_epoch
    await append(leader, b"before")
    await cluster.stop(leader.node_id)
    follower = await cluster.leader()
    assert follower.leader_epoch > leader_epoch
    await append(follower, b"after")
    await cluster.start(leader.node_id)
    await cluster.all_have([b"before", b"after"])


@wired(1, 2, 3)
async def test_a_leader_that_stops_hands_over_and_waits_until_it_is_heard(cluster: WiredCluster) -> None:
    """Without that, its followers would miss it only after controller.quorum.fetch.timeout.ms, 2 s."""
    leader = await cluster.leader()
    await append(leader, b"before")
    began, leader_epoch = cluster.loop.time(), leader.leader_epoch
    await cluster.stop(leader.node_id)
    follower = await cluster.leader()
    assert cluster.loop.time() - began < 0.1
    assert follower.leader_epoch == leader_epoch + 1, "by the first election"


@wired(1, 2, 3)
async def test_a_leader_that_stops_does_not_wait_for_long_for_who_is_cut_off(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"before")
    cluster.isolate(leader.node_id)
    began = cluster.loop.time()
    await cluster.stop(leader.node_id)
    assert cluster.loop.time() - began <= GOODBYE_S + 0.1


@wired(1, 2, 3)
async def test_a_candidate_that_stops_hands_over_when_it_is_elected(cluster: WiredCluster) -> None:
    """Without that, the one that voted for it would wait for its election timeout, of 1 s at least."""
    leader_id = (await cluster.leader()).node_id
    others = [node.quorum for node_id, node in cluster.nodes.items() if node_id != leader_id]
    cluster.isolate(leader_id)
    standing = [asyncio.ensure_future(each.wait_until(lambda each=each: each.leader_id == -1)) for each in others]  # type: ignore[misc]
    await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
    cluster.heal()
    (candidate,) = [each for each in others if each.voted_id == each.node_id]
    began, leader_epoch = cluster.loop.time(), candidate.leader_epoch
    await cluster.stop(candidate.node_id)
    for node in cluster.nodes.values():
        quorum = node.quorum
        await quorum.wait_until(lambda quorum=quorum: quorum.leader_epoch > leader_epoch and quorum.leader_id >= 0)  # type: ignore[misc]
        assert quorum.leader_epoch == leader_epoch + 1
    assert cluster.loop.time() - began < 0.5
    await asyncio.gather(*standing)


@wired(1, 2, 3)
async def test_a_leader_that_is_cut_off_steps_down_and_takes_back_what_it_appended(cluster: WiredCluster) -> None:
    former = await cluster.leader()
    others = [node_id for node_id in cluster.nodes if node_id != former.node_id]
    cluster.isolate(former.node_id)
    former.append([b"lost"], former.leader_epoch)
    while (leader := await cluster.leader()) is former:
        await asyncio.sleep(0.1)
    assert leader.node_id in others
    await append(leader, b"kept")
    cluster.heal()
    await cluster.all_have([b"kept"])


@wired(1, 2, 3, config=SMALL)
async def test_a_voter_that_was_away_catches_up_by_a_snapshot_in_parts(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    away = next(node_id for node_id in cluster.nodes if node_id != leader.node_id)
    await cluster.stop(away)
    values = [b"%d" % number * 20 for number in range(100, 200)]
    for value in values:
        await append(leader, value)
    while leader.log_start_offset == 0:
        await append(leader, b"more")
        values.append(b"more")
        await asyncio.sleep(60)
    await cluster.start(away)
    await cluster.all_have(values)
    assert cluster.nodes[away].listener.loaded


@wired(1, 2, 3)
async def test_a_voter_is_removed_and_another_added(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"a")
    gone = next(node_id for node_id in cluster.nodes if node_id != leader.node_id)
    key = ReplicaKey(gone, bytes([gone]) * 16)
    assert (await send_request(leader, RemoveVoterRequest(voter=key))).error == 0
    await cluster.stop(gone)
    cluster.disks[4] = SimDisk()
    cluster.nodes[4] = newcomer = WiredNode(cluster, 4, cluster.disks[4])
    await newcomer.start()
    await cluster.all_have([b"a"])
    while (response := await send_request(leader, AddVoterRequest(voter=voter_of(4), timeout_ms=1000))).error:
        assert response.error == 7  # not caught up yet
        await asyncio.sleep(0.1)
    await append(leader, b"b")
    await cluster.all_have([b"a", b"b"])
    expected = VoterSet([voter_of(node_id) for node_id in cluster.nodes])
    assert all(node.quorum.voters == expected for node in cluster.nodes.values())


@wired(1, 2, 3, config=QuorumConfig(controller_quorum_auto_join_enable=True))
async def test_nodes_join_by_themselves_and_replace_their_former_directory(cluster: WiredCluster) -> None:
    leader = await cluster.leader()
    await append(leader, b"a")
    cluster.disks[4] = SimDisk()
    cluster.nodes[4] = newcomer = WiredNode(cluster, 4, cluster.disks[4])
    await newcomer.start()
    await leader.wait_until(lambda: leader.voters.contains(voter_of(4).key))

    former = next(node_id for node_id in cluster.nodes if node_id not in (4, leader.node_id))
    await cluster.stop(former)
    cluster.disks[former] = SimDisk()
    cluster.nodes[former] = again = WiredNode(cluster, former, cluster.disks[former], directory_id=b"n" * 16)
    await again.start()
    replaced = ReplicaKey(former, b"n" * 16)
    await leader.wait_until(lambda: leader.voters.contains(replaced))

    await append(leader, b"b")
    await cluster.all_have([b"a", b"b"])
    assert leader.voters.ids == (1, 2, 3, 4)


LAST_VOTE = VoteRequest(
    candidate=ReplicaKey(9, b"9" * 16),
    leader_epoch=LAST_EPOCH,
    end=OffsetAndEpoch(1000, LAST_EPOCH - 1),
    is_pre_vote=False,
)


async def vote_in_the_last_epoch(cluster: WiredCluster) -> None:
    first = await send_request(await cluster.leader(), LAST_VOTE)
    assert isinstance(first, VoteResponse)
    assert (first.error, first.is_granted, first.leader_epoch) == (0, True, LAST_EPOCH)
    await asyncio.sleep(4)
    assert not cluster.fatal


@wired(1, 2, 3)
async def test_a_vote_in_the_last_epoch_does_not_end_the_loop_of_a_voter(cluster: WiredCluster) -> None:
    """No leader can be elected afterwards, but every voter still responds, also after a restart."""
    await vote_in_the_last_epoch(cluster)
    for _ in range(2):
        for node in cluster.nodes.values():
            again = await send_request(node.quorum, LAST_VOTE)
            assert isinstance(again, VoteResponse)
            assert (again.error, again.leader_epoch) == (0, LAST_EPOCH)
        await cluster.stop()
        await cluster.start()


@wired(1)
async def test_an_only_voter_in_the_last_epoch_responds_but_does_not_start_again(cluster: WiredCluster) -> None:
    await vote_in_the_last_epoch(cluster)
    again = await send_request(cluster.nodes[1].quorum, LAST_VOTE)
    assert isinstance(again, VoteResponse)
    assert (again.error, again.leader_epoch) == (0, LAST_EPOCH)
    await cluster.stop()
    with pytest.raises(StorageError, match="no epoch is left"):
        await cluster.start()


def test_a_node_without_the_right_logs_it_once_and_goes_on_when_it_is_granted(caplog: pytest.LogCaptureFixture) -> None:
    denied = Deny((AclOperation.CLUSTER_ACTION, CLUSTER_NAME))

    @wired(1, 2, 3)
    async def withdraw(cluster: WiredCluster) -> None:
        leader = await cluster.leader()
        await append(leader, b"before")
        for node in cluster.nodes.values():
            node.authorizer.use(denied)
        await asyncio.sleep(20)
        for node in cluster.nodes.values():
            node.authorizer.use(AllowAll())
        await append(await cluster.leader(), b"after")
        await cluster.all_have([b"before", b"after"])

    with caplog.at_level(logging.INFO, "kafkapy.runtime.quorum.transport"):
        withdraw()
    logged = [each.getMessage() for each in caplog.records if each.name == "kafkapy.runtime.quorum.transport"]
    refusals = [line for line in logged if "CLUSTER_AUTHORIZATION_FAILED" in line]
    assert refusals
    assert max(Counter(refusals).values()) <= len((1, 2, 3)), "each node logs it once"
    assert any("answers VoteRequest again" in line for line in logged)
