"""Quorums for tests: a driver on a simulated disk and loop, and a listener that is a list of values."""

from collections.abc import Callable, Iterable
from typing import Any

from kafkapy.config.quorum import QuorumConfig
from kafkapy.raft.messages import Request, Response
from kafkapy.raft.voters import Endpoint, Voter, VoterSet
from kafkapy.runtime.quorum.exchange import KraftVersions
from kafkapy.runtime.quorum.identity import MetadataDirectory, QuorumIdentity
from kafkapy.runtime.quorum.quorum import CommittedBatch, Quorum, SnapshotSource
from kafkapy.seams import System
from kafkapy.storage.metadata.snapshot import SnapshotWriter
from kafkapy.types import OffsetAndEpoch, ReplicaKey
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.support.chance import SeededRandom

DIRECTORY = "/logs/__cluster_metadata-0"


class ValueList:
    """A state machine: all values in order, and what it was told of leaders."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.next_offset = 0
        self.last_epoch = 0
        self.leaders: list[tuple[int, int]] = []
        self.loaded: list[OffsetAndEpoch] = []
        self.on_leader: Callable[[int, int], None] | None = None

    def on_load_snapshot(self, reader: SnapshotSource) -> None:
        assert reader.snapshot_id.offset >= self.next_offset
        self.values = [value for batch in reader.batches() for value in batch]
        self.next_offset, self.last_epoch = reader.snapshot_id
        self.loaded.append(reader.snapshot_id)

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset
            assert batch.leader_epoch >= self.last_epoch
            assert batch.is_control or len(batch.records) == batch.last_offset - batch.base_offset + 1
            self.values += batch.records
            self.next_offset, self.last_epoch = batch.last_offset + 1, batch.leader_epoch

    def on_leader_change(self, leader_id: int, leader_epoch: int) -> None:
        self.leaders.append((leader_id, leader_epoch))
        if self.on_leader is not None:
            self.on_leader(leader_id, leader_epoch)

    def snapshot(self) -> tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]:
        values = list(self.values)
        slices = [values[start : start + 5] for start in range(0, len(values), 5)]
        return OffsetAndEpoch(self.next_offset, self.last_epoch), 1_600_000_000_000, slices


class FakeTransport:
    """Carries messages between the quorums of one test, each to its node's, after `delay_ms`."""

    def __init__(self, loop: SimLoop, source_id: int, quorums: dict[int, Quorum], delay_ms: int = 2) -> None:
        self._loop = loop
        self._source_id = source_id
        self._quorums = quorums
        self._delay_s = delay_ms / 1000
        self.cut_off: set[int] = set()

    def send(
        self,
        node_id: int,
        endpoints: tuple[Endpoint, ...],
        request: Request,
        on_response: Callable[[Response | None], None],
    ) -> None:
        def respond(response: Response) -> None:
            self._loop.call_later(self._delay_s, on_response, response)

        def arrive() -> None:
            target = self._quorums.get(node_id)
            if target is None or {node_id, self._source_id} & self.cut_off:
                on_response(None)
            else:
                target.receive(request, respond)

        self._loop.call_later(self._delay_s, arrive)

    def query_kraft_versions(self, voter: Voter, on_versions: Callable[[KraftVersions], None]) -> None:
        is_there = voter.node_id in self._quorums and not {voter.node_id, self._source_id} & self.cut_off
        self._loop.call_later(self._delay_s, on_versions, (0, 1) if is_there else "BROKER_NOT_AVAILABLE")


def local_voter(node_id: int, port: int = 9093) -> Voter:
    return Voter(ReplicaKey(node_id, bytes([node_id]) * 16), (Endpoint("CONTROLLER", "localhost", port),))


IDENTITY_FIELDS = frozenset(QuorumIdentity.__slots__)
DIRECTORY_FIELDS = frozenset(("was_clean_shutdown", "make_room", "on_flushed"))


def new_quorum(
    loop: SimLoop, disk: SimDisk, *, node_id: int = 1, listener: ValueList | None = None, **options: Any
) -> Quorum:
    """Return a quorum that is not started; `options`: of Quorum and of its QuorumIdentity."""
    fatal: list[BaseException] = []
    own: dict[str, Any] = {
        "directory_id": bytes([node_id]) * 16,
        "endpoints": local_voter(node_id, options.pop("port", 9093)).endpoints,
        "static_voters": VoterSet(),
    }
    own |= {name: options.pop(name) for name in IDENTITY_FIELDS & options.keys()}
    io_pool = options.pop("io_pool", None) or SimIoPool(loop)
    place = {name: options.pop(name) for name in DIRECTORY_FIELDS & options.keys()}
    quorum = Quorum(
        **{
            "identity": QuorumIdentity(cluster_id="c", node_id=node_id, **own),
            "config": QuorumConfig(),
            "directory": MetadataDirectory(DIRECTORY, **place),
            "system": System(disk, SimClock(loop), SeededRandom(node_id), io_pool),
            "on_fatal": fatal.append,
        }
        | options
    )
    if listener is not None:
        quorum.add_listener(listener)
        quorum.set_snapshot_source(listener.snapshot)
    return quorum


def format_standalone(disk: SimDisk, voters: VoterSet | None = None, directory: str = DIRECTORY) -> None:
    """Write the bootstrap snapshot, as `storage format --standalone` does."""
    disk.make_directory(directory)
    writer = SnapshotWriter(
        disk,
        directory,
        OffsetAndEpoch(0, 0),
        last_contained_log_timestamp_ms=1,
        now_ms=2,
        kraft_version=1,
        voters=voters if voters is not None else VoterSet([local_voter(1)]),
    )
    writer.finish()
    writer.sync()
    writer.freeze()
    disk.sync_all()


async def committed(quorum: Quorum, offset: int) -> None:
    await quorum.wait_until(lambda: quorum.high_watermark > offset)


async def append(quorum: Quorum, *values: bytes) -> int:
    offset = quorum.append(list(values), quorum.leader_epoch)
    await committed(quorum, offset)
    return offset
