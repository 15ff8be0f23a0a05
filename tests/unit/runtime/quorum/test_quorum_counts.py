"""What a node with an admin listener counts of the quorum: commits, elections, flushes, snapshots, its connections."""

import asyncio
from math import isnan
from typing import Any

from kafkapy.config.quorum import QuorumConfig
from kafkapy.metrics.quorum import QuorumCounts
from kafkapy.protocol.client_connection import ClientRequest
from kafkapy.protocol.messages.vote_request import VoteRequest
from kafkapy.protocol.traffic import OutboundTraffic
from kafkapy.raft.voters import VoterSet
from kafkapy.reactor.counted_channel import CountedConnector
from kafkapy.runtime.peer import Peer, PeerSettings
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector
from tests.simulator.wired_quorum import WiredCluster, host_of
from tests.support.chance import SeededRandom
from tests.support.quorums import DIRECTORY, FakeTransport, ValueList, format_standalone, local_voter, new_quorum

VOTE = 52


async def test_commits_and_flushes_of_a_single_voter_are_counted(loop: SimLoop) -> None:
    disk, counts, flushes = SimDisk(), QuorumCounts(), list[int]()
    format_standalone(disk)
    quorum = new_quorum(loop, disk, counts=counts, on_flushed=flushes.append)
    await quorum.start()
    before = len(flushes)
    offset = quorum.append([b"a", b"b"], quorum.leader_epoch)
    await quorum.wait_until(lambda: quorum.high_watermark > offset)
    assert len(flushes) > before
    average_ms, highest_ms = counts.commit_ms.read(loop.now_ms())
    assert 0 <= average_ms <= highest_ms
    assert isnan(counts.election_ms.read(loop.now_ms())[0]), "a single voter elects itself at once"
    await quorum.close()


async def test_the_size_and_the_age_of_the_last_snapshot(loop: SimLoop) -> None:
    disk, listener = SimDisk(), ValueList()
    format_standalone(disk)
    config = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=500)
    quorum = new_quorum(loop, disk, listener=listener, config=config)
    await quorum.start()
    await asyncio.sleep(5)
    assert (quorum.snapshots.latest_bytes, quorum.snapshots.latest_age_ms) == (0, 5000)
    for _ in range(10):
        offset = quorum.append([b"v" * 100], quorum.leader_epoch)
        await quorum.wait_until(lambda: quorum.high_watermark > offset)  # noqa: B023
    await asyncio.sleep(1)
    taken = quorum.latest_snapshot_id
    assert taken is not None
    name = next(each for each in disk.list_directory(DIRECTORY) if each.startswith(f"{taken.offset:020}-"))
    assert quorum.snapshots.latest_bytes == len(disk.read_file(f"{DIRECTORY}/{name}"))
    assert quorum.snapshots.latest_age_ms < 1100
    await quorum.close()


async def test_an_election_among_three_is_timed_by_its_candidate(loop: SimLoop) -> None:
    voters = VoterSet(local_voter(node_id) for node_id in (1, 2, 3))
    quorums: dict[int, Any] = {}
    counts = {node_id: QuorumCounts() for node_id in (1, 2, 3)}
    for node_id in (1, 2, 3):
        disk = SimDisk()
        format_standalone(disk, voters)
        transport = FakeTransport(loop, node_id, quorums)
        quorums[node_id] = new_quorum(loop, disk, node_id=node_id, transport=transport, counts=counts[node_id])
    for quorum in quorums.values():
        await quorum.start()
    await asyncio.sleep(20)
    (leader_id,) = {quorum.leader_id for quorum in quorums.values()}
    average_ms, _ = counts[leader_id].election_ms.read(loop.now_ms())
    assert 0 < average_ms < 5000
    for quorum in quorums.values():
        await quorum.close()


async def test_requests_of_a_connection_to_another_node_are_counted(loop: SimLoop) -> None:
    cluster = WiredCluster(loop, 1)
    await cluster.start()
    traffic = OutboundTraffic()
    peer = Peer(
        host_of(1),
        9093,
        connector=CountedConnector(SimConnector(cluster.network, "10.0.0.1"), traffic),
        clock=SimClock(loop),
        random=SeededRandom(1),
        settings=PeerSettings(client_id="node", software_version="0", traffic=traffic),
    )
    for _ in range(3):
        answered: asyncio.Future[Any] = loop.create_future()
        peer.send(
            ClientRequest(
                api_key=VOTE,
                build=lambda _: VoteRequest(),
                on_response=lambda message, _: answered.set_result(message),  # noqa: B023
                on_failure=lambda _: answered.set_result(None),  # noqa: B023
                timeout_ms=5000,
                min_version=0,
                max_version=2,
            )
        )
        assert (await answered) is not None
    assert (traffic.sent_frames, traffic.received_frames) == (4, 4), "with that for the versions"
    assert (traffic.opened, traffic.closed) == (1, 0)
    assert traffic.sent_bytes > 4 * 10
    assert traffic.received_bytes > 4 * 10
    assert 10 < traffic.longest_recent_frame(0) < traffic.sent_bytes
    peer.close()
    assert (traffic.opened, traffic.closed) == (1, 1)
    await cluster.stop()
