"""What a leader of the metadata quorum sends of its log and its snapshots: whole batches, slices of a file."""

import asyncio
import errno
from typing import Any

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft import messages as m
from kafkapy.record.batches import batches
from kafkapy.runtime.quorum.exchange import MAX_RESPONSE_BYTES
from kafkapy.runtime.quorum.quorum import Quorum
from kafkapy.storage.metadata.snapshot import snapshot_name
from kafkapy.types import OffsetAndEpoch, ReplicaKey
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop
from tests.support.quorums import DIRECTORY, ValueList, append, format_standalone, new_quorum

OBSERVER = ReplicaKey(9, b"d" * 16)
SNAPSHOTS = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=300, metadata_max_retention_ms=-1)


async def asked(quorum: Quorum, request: m.Request) -> Any:
    response: asyncio.Future[m.Response] = asyncio.get_running_loop().create_future()
    quorum.receive(request, response.set_result)
    return await response


async def a_leader(loop: SimLoop, disk: SimDisk, **options: Any) -> Quorum:
    format_standalone(disk)
    quorum = new_quorum(loop, disk, listener=ValueList(), **options)
    await quorum.start()
    return quorum


@pytest.mark.parametrize(("max_bytes", "count"), [(0, 1), (1, 1), (-1, 1), (250, 2), (1 << 30, 5)])
async def test_a_fetch_gets_whole_batches_and_at_least_one(loop: SimLoop, max_bytes: int, count: int) -> None:
    quorum = await a_leader(loop, SimDisk())
    start_offset = quorum.log_end_offset
    for _ in range(5):
        quorum.append([b"v" * 50], 1)
    await quorum.wait_until(lambda: quorum.high_watermark == quorum.log_end_offset)
    request = m.FetchRequest(
        replica=OBSERVER,
        leader_epoch=1,
        fetch_offset=start_offset,
        last_fetched_epoch=1,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=max_bytes,
    )
    found = (await asked(quorum, request)).batches
    assert [each.base_offset for each in found] == list(range(start_offset, start_offset + count))
    assert all(len(list(batches(bytes(each.data)))) == 1 for each in found)
    await quorum.close()


async def test_no_peer_gets_more_than_followers_ask_for(loop: SimLoop) -> None:
    """What is sent is read into memory, on the event loop."""
    quorum = await a_leader(loop, SimDisk())
    start_offset = quorum.log_end_offset
    for _ in range(3):
        quorum.append([b"v" * (MAX_RESPONSE_BYTES // 2)], 1)
    await quorum.wait_until(lambda: quorum.high_watermark == quorum.log_end_offset)
    request = m.FetchRequest(
        replica=OBSERVER,
        leader_epoch=1,
        fetch_offset=start_offset,
        last_fetched_epoch=1,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=(1 << 31) - 1,
    )
    assert len((await asked(quorum, request)).batches) == 1
    await quorum.close()


async def test_records_whose_file_cannot_be_opened_for_now_are_not_sent_and_the_leader_goes_on(loop: SimLoop) -> None:
    disk, fatal = SimDisk(), list[BaseException]()
    quorum = await a_leader(loop, disk, on_fatal=fatal.append)
    start_offset = quorum.log_end_offset
    await append(quorum, b"v")
    request = m.FetchRequest(
        replica=OBSERVER,
        leader_epoch=1,
        fetch_offset=start_offset,
        last_fetched_epoch=1,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=1000,
    )
    disk.fail("read", errno.EMFILE, path=".log")
    assert (await asked(quorum, request)).error == ErrorCode.UNKNOWN_SERVER_ERROR
    found = await asked(quorum, request)
    assert (found.error, len(found.batches)) == (0, 1)
    assert not fatal
    await quorum.close()


async def test_a_position_beyond_a_snapshot_is_out_of_range(loop: SimLoop) -> None:
    disk = SimDisk()
    quorum = await a_leader(loop, disk, config=SNAPSHOTS)
    for number in range(20):
        offset = quorum.append([b"%020d" % number], 1)
        await quorum.wait_until(lambda offset=offset: quorum.high_watermark > offset)  # type: ignore[misc]
    await asyncio.sleep(1)
    snapshot_id = quorum.latest_snapshot_id
    assert snapshot_id is not None
    assert snapshot_id != OffsetAndEpoch(0, 0)
    content = disk.read_file(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")

    async def part(position: int, max_bytes: int = 100) -> Any:
        request = m.FetchSnapshotRequest(
            replica=OBSERVER, leader_epoch=1, snapshot_id=snapshot_id, position=position, max_bytes=max_bytes
        )
        return await asked(quorum, request)

    for position in (-1, len(content), len(content) + 1):
        assert (await part(position)).error == ErrorCode.POSITION_OUT_OF_RANGE
    found = await part(7)
    assert (found.error, found.position, found.size_bytes) == (0, 7, len(content))
    assert bytes(found.data) == content[7:107]
    assert bytes((await part(len(content) - 1)).data) == content[-1:]
    await quorum.close()


async def test_a_snapshot_that_is_deleted_or_cannot_be_opened_is_not_sent_and_the_leader_goes_on(
    loop: SimLoop,
) -> None:
    disk, fatal = SimDisk(), list[BaseException]()
    quorum = await a_leader(loop, disk, config=SNAPSHOTS, on_fatal=fatal.append)
    for number in range(20):
        await append(quorum, b"%020d" % number)
    await asyncio.sleep(1)
    snapshot_id = quorum.latest_snapshot_id
    assert snapshot_id is not None
    request = m.FetchSnapshotRequest(
        replica=OBSERVER, leader_epoch=1, snapshot_id=snapshot_id, position=0, max_bytes=100
    )
    disk.fail("open", errno.EMFILE, path=".checkpoint")
    assert (await asked(quorum, request)).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await asked(quorum, request)).error == 0
    disk.delete(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")
    assert (await asked(quorum, request)).error == ErrorCode.SNAPSHOT_NOT_FOUND
    assert not fatal
    await append(quorum, b"on")
    await quorum.close()
