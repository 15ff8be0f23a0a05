"""A cluster of Raft cores in virtual time: the properties of Apache Kafka's RaftEventSimulationTest, and ours.

Each node has a platter (what survives a kill: election state at once, log and snapshots up to the last sync) and a log
in memory. Messages take random time, may be lost, and do not cross a partition. Syncs take random time, too. After
every event the invariants are checked; a run is repeated exactly by its seed.

Entries are LogBatches of one record; the state machine is a counter that the leader of the moment increments: the
committed log must be the same everywhere, and values 0, 1, 2, ... in a row make lost or doubled commits visible.
"""

import heapq
import itertools
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from kafkapy.raft.config import FOREVER_MS
from kafkapy.raft.core import RaftConfig, RaftCore
from kafkapy.raft.effects import (
    AppendBatch,
    ElectionState,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    ResetLogToSnapshot,
    SendRequest,
    SendResponse,
    SendResponseWithRecords,
    SendResponseWithSnapshot,
    TruncateLog,
    WriteSnapshotPart,
)
from kafkapy.raft.events import (
    AppendRequested,
    LogFlushed,
    LogPrefixDeleted,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    TimePassed,
)
from kafkapy.raft.log_view import LogView
from kafkapy.raft.messages import FetchResponse, KRaftVersion, LogBatch, Request, Response, Voters
from kafkapy.raft.roles import Leader
from kafkapy.raft.voters import Endpoint, Voter, VoterHistory, VoterSet
from kafkapy.types import OffsetAndEpoch, ReplicaKey

SNAPSHOT_EVERY = 10
"""Committed records after which a node takes a snapshot, where the cluster does so at all."""
SNAPSHOT_PARTS = 3
KAFKAS_TIMEOUTS = {
    "election_timeout_ms": 1000,
    "election_backoff_max_ms": 100,
    "fetch_timeout_ms": 3000,
    "request_timeout_ms": 500,
    "retry_backoff_ms": 50,
    "fetch_max_wait_ms": 100,
}
"""Those of RaftEventSimulationTest."""
SHORT_TIMEOUTS = {
    "election_timeout_ms": 300,
    "election_backoff_max_ms": 50,
    "fetch_timeout_ms": 700,
    "request_timeout_ms": 200,
    "retry_backoff_ms": 50,
    "fetch_max_wait_ms": 60,
}
"""A quarter of that, for messages of the same 1 to 20 ms: a run waits less for nothing."""
base_offset_of = attrgetter("base_offset")
last_offset_of = attrgetter("last_offset")


@dataclass(slots=True)
class Snapshot:
    """All committed entries below its end, so that history can be compared, and the voters that hold there."""

    snapshot_id: OffsetAndEpoch
    entries: list[LogBatch]
    voters: VoterSet
    kraft_version: int


@dataclass(slots=True)
class Platter:
    """What a node finds after a kill."""

    election: ElectionState = field(default_factory=ElectionState)
    start_offset: int = 0
    batches: list[LogBatch] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)


def key_of(node_id: int, disk_count: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 15 + bytes([node_id + disk_count]))


def voter_of(node_id: int, disk_count: int = 0) -> Voter:
    return Voter(key_of(node_id, disk_count), (Endpoint("CONTROLLER", f"node{node_id}", 9093),))


class Node:
    """A core and the driver around it, in memory."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.platter = Platter()
        self.disk_count = 0
        """Disks that were lost: each gives the node another directory id."""
        self.clock_ahead_ms = 0
        """By how much the node's monotonic clock is ahead of the cluster's time."""
        self.incarnation = 0
        self.core: RaftCore | None = None
        self.batches: list[LogBatch] = []
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.committed: list[LogBatch] = []
        """Everything below the high watermark, from offset 0: by snapshot or one by one."""
        self.part: list[bytes] = []
        self.part_from: Snapshot | None = None
        self.armed_ms: int | None = None
        self.wanted_flush: FlushLog | None = None
        self.is_flushing = False

    @property
    def is_running(self) -> bool:
        return self.core is not None

    @property
    def voter(self) -> Voter:
        return voter_of(self.node_id, self.disk_count)

    @property
    def now_ms(self) -> int:
        return self.cluster.now_ms + self.clock_ahead_ms

    # ---- life

    def start(self) -> None:
        assert self.core is None
        platter = self.platter
        self.batches = list(platter.batches)
        self.snapshots = dict(platter.snapshots)
        latest = max(self.snapshots, default=None)
        if latest is not None and (latest.offset > self.end_offset or latest.leader_epoch > self.last_epoch):
            self.batches, platter.batches, platter.start_offset = [], [], latest.offset
            self.snapshots = platter.snapshots = {latest: self.snapshots[latest]}
        view = LogView(platter.start_offset, platter.start_offset, snapshots=sorted(self.snapshots))
        history = VoterHistory(self.cluster.static_voters)
        if latest is not None:
            snapshot = self.snapshots[latest]
            history.reset(latest.offset, snapshot.voters, snapshot.kraft_version)
            self.committed = list(snapshot.entries)
        else:
            self.committed = []
        for batch in self.batches:
            view.append(batch.base_offset, batch.last_offset, batch.leader_epoch)
            if latest is None or batch.base_offset >= latest.offset:
                note_controls(history, batch)
        view.durable_end_offset = view.end_offset
        config = RaftConfig(
            local=self.voter,
            bootstrap_ids=tuple(other for other in self.cluster.nodes if other != self.node_id),
            **self.cluster.timeouts,
        )
        seed = self.cluster.rng.getrandbits(60)
        self.core = RaftCore(config, view, history, self.found_election(), seed)
        self.incarnation += 1
        self.armed_ms = None
        self.wanted_flush, self.is_flushing = None, False
        self.step(Started())

    def kill(self) -> None:
        """Stop at once; what was not synced is gone."""
        self.core = None
        self.incarnation += 1
        self.cluster.watermarks.pop(self.node_id, None)

    def lose_disk(self) -> None:
        """Stop, and forget everything, the directory id included."""
        self.kill()
        self.cluster.lost_platters[self.voter.key] = self.platter
        self.platter = Platter()
        self.disk_count += 1
        self.cluster.epochs.pop(self.node_id, None)

    def found_election(self) -> ElectionState:
        """Return the election state that a start finds."""
        return self.platter.election

    def persist(self, effect: PersistElection) -> None:
        """Make the election state durable."""
        self.platter.election = effect.state

    def jump(self, duration_ms: int) -> None:
        """Let the clock jump ahead, as after a suspended computer wakes up."""
        self.clock_ahead_ms += duration_ms
        self.armed_ms = None
        if self.core is not None:
            self.arm()

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.platter.start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].leader_epoch if self.batches else 0

    # ---- stepping

    def step(self, event: Any) -> None:
        core = self.core
        if core is None:
            return
        followers: list[Any] = [event]
        while followers:
            for effect in core.step(followers.pop(0), self.now_ms):
                self.carry_out(effect, followers)
        self.maybe_flush()
        self.check_own_log()
        self.cluster.check_node(self.node_id, core)
        self.arm()

    def arm(self) -> None:
        assert self.core is not None
        deadline_ms = self.core.deadline_ms()
        if deadline_ms is None or deadline_ms == self.armed_ms:
            return
        self.armed_ms = deadline_ms
        incarnation = self.incarnation

        def fire() -> None:
            if self.incarnation == incarnation and self.armed_ms == deadline_ms:
                self.armed_ms = None
                self.step(TimePassed())

        self.cluster.at(max(deadline_ms - self.clock_ahead_ms, self.cluster.now_ms), fire)

    def carry_out(self, effect: Any, followers: list[Any]) -> None:
        cluster = self.cluster
        match effect:
            case AppendBatch():
                assert effect.batch.base_offset == self.end_offset
                self.batches.append(effect.batch)
            case FlushLog():
                self.wanted_flush = effect
            case TruncateLog():
                self.truncate(effect.end_offset)
            case PersistElection():
                assert effect.state.leader_epoch >= self.platter.election.leader_epoch
                self.persist(effect)
            case HighWatermarkAdvanced():
                self.commit_to(effect.high_watermark, followers)
            case LeaderChanged():
                cluster.on_leader_changed(self, effect)
            case SendRequest():
                cluster.send_request(self, effect)
            case SendResponse():
                effect.respond_to(effect.response)
            case SendResponseWithRecords():
                effect.respond_to(self.with_records(effect))
            case SendResponseWithSnapshot():
                snapshot = self.snapshots[effect.snapshot_id]
                cluster.snapshots_sent[effect.snapshot_id] = snapshot
                data = b"x" if effect.position < SNAPSHOT_PARTS else b""
                effect.respond_to(replace(effect.response, size_bytes=SNAPSHOT_PARTS, data=data))
            case WriteSnapshotPart():
                pass
            case InstallSnapshot():
                self.install(effect.snapshot_id, followers)
            case ResetLogToSnapshot():
                self.reset_to(effect.snapshot_id)

    def when_alive(self, call: Callable[[], None]) -> Callable[[], None]:
        incarnation = self.incarnation

        def guarded() -> None:
            if self.incarnation == incarnation:
                call()

        return guarded

    # ---- the log

    def maybe_flush(self) -> None:
        """Start a sync if one is wanted and none is under way, as runtime/quorum/flush.py does."""
        flush = self.wanted_flush
        if flush is not None and not self.is_flushing:
            self.wanted_flush, self.is_flushing = None, True
            self.cluster.after(self.cluster.rng.randrange(1, 6), self.when_alive(lambda: self.flushed(flush)))

    def flushed(self, flush: FlushLog) -> None:
        """A sync of all that was written when it began has ended (truncations reach the platter at once)."""
        assert self.core is not None
        self.is_flushing = False
        if flush.generation == self.core.log.generation:
            synced = self.platter.batches
            written = synced[-1].last_offset + 1 if synced else self.platter.start_offset
            first = bisect_left(self.batches, written, key=base_offset_of)
            for batch in islice(self.batches, first, None):
                if batch.base_offset < flush.end_offset:
                    synced.append(batch)
        self.step(LogFlushed(flush.end_offset, flush.generation))

    def truncate(self, end_offset: int) -> None:
        assert end_offset >= len(self.committed), "a committed record was cut"
        for batches in (self.batches, self.platter.batches):
            del batches[bisect_left(batches, end_offset, key=base_offset_of) :]

    def with_records(self, effect: SendResponseWithRecords) -> Response:
        response = effect.response
        assert isinstance(response, FetchResponse)
        first = bisect_left(self.batches, effect.fetch_offset, key=last_offset_of)
        found = self.batches[first : first + self.cluster.rng.randrange(1, 30)]
        return replace(response, batches=tuple(found))

    def commit_to(self, high_watermark: int, followers: list[Any]) -> None:
        first = len(self.committed)
        index = bisect_left(self.batches, first, key=base_offset_of)
        for batch in islice(self.batches, index, None):
            if batch.base_offset < high_watermark:
                self.committed.extend(spread(batch))
        assert len(self.committed) == high_watermark, f"{high_watermark} does not end a batch"
        assert self.core is not None
        if self.core.is_leader:  # Raft 5.4.2: another leader could overwrite what a majority has of an earlier epoch
            assert self.committed[-1].leader_epoch == self.core.leader_epoch, "a leader commits an earlier epoch's"
        self.cluster.note_committed(self, first)
        if self.cluster.takes_snapshots:
            self.maybe_snapshot(followers)

    def maybe_snapshot(self, followers: list[Any]) -> None:
        """Snapshot what is committed; now and then let go of the log below it."""
        assert self.core is not None
        latest = max(self.snapshots, default=OffsetAndEpoch(0, 0))
        if len(self.committed) < latest.offset + SNAPSHOT_EVERY:
            return
        end_offset = len(self.committed)
        voters = self.core.voters
        snapshot = Snapshot(
            OffsetAndEpoch(end_offset, self.committed[-1].leader_epoch),
            list(self.committed),
            voters.before(end_offset),
            voters.kraft_version_before(end_offset),
        )
        self.snapshots[snapshot.snapshot_id] = self.platter.snapshots[snapshot.snapshot_id] = snapshot
        followers.append(SnapshotTaken(snapshot.snapshot_id))
        if self.cluster.rng.random() < 0.5:
            self.trim_to(snapshot.snapshot_id)
            followers.append(LogPrefixDeleted(end_offset))

    def trim_to(self, snapshot_id: OffsetAndEpoch) -> None:
        self.batches = [batch for batch in self.batches if batch.base_offset >= snapshot_id.offset]
        platter = self.platter
        platter.batches = [batch for batch in platter.batches if batch.base_offset >= snapshot_id.offset]
        platter.start_offset = snapshot_id.offset
        self.snapshots = {key: value for key, value in self.snapshots.items() if key >= snapshot_id}
        platter.snapshots = dict(self.snapshots)

    def install(self, snapshot_id: OffsetAndEpoch, followers: list[Any]) -> None:
        snapshot = self.cluster.snapshots_sent[snapshot_id]
        self.snapshots[snapshot_id] = self.platter.snapshots[snapshot_id] = snapshot
        followers.append(SnapshotInstalled(snapshot_id, snapshot.voters, snapshot.kraft_version))

    def reset_to(self, snapshot_id: OffsetAndEpoch) -> None:
        assert self.core is not None
        assert not isinstance(self.core.role, Leader), "a leader never loads a snapshot"
        snapshot = self.snapshots[snapshot_id]
        self.batches, self.platter.batches = [], []
        self.platter.start_offset = snapshot_id.offset
        self.snapshots = {snapshot_id: snapshot}
        self.platter.snapshots = {snapshot_id: snapshot}
        assert len(snapshot.entries) >= len(self.committed)
        self.committed = list(snapshot.entries)

    def check_own_log(self) -> None:
        """The core's view is the log; the log begins at 0 or at a snapshot."""
        core = self.core
        assert core is not None
        view = core.log
        assert view.end_offset == self.end_offset
        assert view.start_offset == self.platter.start_offset
        if view.start_offset > 0:
            assert any(snapshot_id.offset == view.start_offset for snapshot_id in self.snapshots)
        if self.batches:
            assert view.last_epoch == self.batches[-1].leader_epoch
        assert core.high_watermark in (-1, len(self.committed))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What differs between clusters. loss, duplicates: the share of messages that never arrive, or arrive twice."""

    loss: float = 0.0
    duplicates: float = 0.0
    takes_snapshots: bool = False
    kraft_version: int = 1
    new_node: "Callable[[Cluster, int], Node]" = Node
    timeouts: Mapping[str, int] = field(default_factory=lambda: KAFKAS_TIMEOUTS)


DEFAULT_OPTIONS = ClusterOptions()


class Cluster:
    """Nodes, the network between them, time, and what must always hold."""

    def __init__(
        self,
        seed: int,
        voter_count: int,
        observer_count: int = 0,
        options: ClusterOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.loss = options.loss
        self.duplicates = options.duplicates
        self.takes_snapshots = options.takes_snapshots
        self.timeouts = options.timeouts
        voter_ids = range(1, voter_count + 1)
        self.static_voters = VoterSet(map(voter_of, voter_ids))
        self.nodes = {
            node_id: options.new_node(self, node_id) for node_id in range(1, voter_count + observer_count + 1)
        }
        self.partitioned: set[int] = set()
        """Nodes that reach only each other; the others reach only the others."""
        self.snapshots_sent: dict[OffsetAndEpoch, Snapshot] = {}
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self.history: list[LogBatch] = []
        """What was ever committed anywhere, by offset."""
        self.lost_platters: dict[ReplicaKey, Platter] = {}
        """What a disk held when it was lost: its last acknowledgements may still be on their way."""
        self.watermarks: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.next_value = 0
        self.event_count = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        if options.kraft_version > 0:
            bootstrap = Snapshot(OffsetAndEpoch(0, 0), [], self.static_voters, options.kraft_version)
            for node_id in voter_ids:
                self.nodes[node_id].platter.snapshots[bootstrap.snapshot_id] = bootstrap
            self.static_voters = VoterSet()

    @property
    def patience_ms(self) -> int:
        """How long a follower waits for its leader: how long faults last is drawn from that."""
        return self.timeouts["fetch_timeout_ms"]

    # ---- time

    def at(self, due_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (due_ms, next(self._order), call))

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, call)

    def start_all(self, node_ids: Iterable[int] | None = None) -> None:
        for node_id in list(node_ids if node_ids is not None else self.nodes):
            self.nodes[node_id].start()

    def run_one(self) -> None:
        due_ms, _, call = heapq.heappop(self._queue)
        assert due_ms >= self.now_ms
        self.now_ms = due_ms
        call()
        self.event_count += 1

    def next_due_ms(self) -> int:
        """Return when something is due next; the far future if nothing is."""
        return self._queue[0][0] if self._queue else FOREVER_MS

    def run_until(self, condition: Callable[[], bool], *, limit_ms: int = 120_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._queue, f"seed {self.seed}: nothing is left to happen"
            assert self.now_ms <= end_ms, f"seed {self.seed}: no progress: {self.describe()}"
            self.run_one()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.run_one()
        self.now_ms = end_ms

    def describe(self) -> str:
        return "; ".join(
            f"{node.node_id}: {type(node.core.role).__name__} {node.core.leader_epoch} "
            f"[{node.core.log.start_offset}, {node.core.log.end_offset}) hw {node.core.high_watermark}"
            for node in self.nodes.values()
            if node.core is not None
        )

    # ---- network

    def can_reach(self, source_id: int, target_id: int) -> bool:
        return (source_id in self.partitioned) == (target_id in self.partitioned)

    def deliver(self, source_id: int, target_id: int, call: Callable[[], None]) -> None:
        """Have `call` happen at the target after some time, or never."""

        def arrive() -> None:
            if self.can_reach(source_id, target_id):
                call()

        if self.rng.random() >= self.loss:
            self.after(self.rng.randrange(1, 20), arrive)
            if self.duplicates and self.rng.random() < self.duplicates:
                self.after(self.rng.randrange(1, 2000), arrive)

    def send_request(self, source: Node, effect: SendRequest) -> None:
        target = self.nodes[effect.node_id]
        assert target is not source
        if not target.is_running:
            failed = source.when_alive(lambda: source.step(RequestFailed(effect.node_id, effect.request_id)))
            self.after(5, failed)
            return

        def respond(response: Response) -> None:
            event = ResponseReceived(effect.node_id, effect.request_id, response)
            self.deliver(target.node_id, source.node_id, source.when_alive(lambda: source.step(event)))

        self.deliver(source.node_id, target.node_id, self._arrival(target, effect.request, respond))

    def _arrival(self, target: Node, request: Request, respond: Callable[[Response], None]) -> Callable[[], None]:
        return target.when_alive(lambda: target.step(RequestReceived(respond, request)))

    def client_request(self, target: Node, request: Request) -> list[Any]:
        """Put a question to a node; the response appears in the list."""
        responses: list[Any] = []
        target.step(RequestReceived(responses.append, request))
        return responses

    # ---- what clients do

    def leader(self) -> Node | None:
        """Return the running leader of the highest epoch."""
        leading = [node for node in self.nodes.values() if node.core is not None and node.core.is_leader]
        return max(leading, key=lambda node: node.core.leader_epoch if node.core else 0, default=None)

    def append_every(self, interval_ms: int) -> None:
        """Let the leader of the moment increment the counter, again and again."""

        def append() -> None:
            for node in self.nodes.values():
                core = node.core
                if core is not None and core.is_leader:
                    self.next_value += 1
                    node.step(AppendRequested(core.leader_epoch, self.rng.randrange(1, 4), self.next_value))
            self.after(interval_ms, append)

        self.after(interval_ms, append)

    def resign(self, node: Node) -> None:
        assert node.core is not None
        node.step(ResignRequested(node.core.leader_epoch))

    def highest_committed(self) -> int:
        return len(self.history)

    def all_reached(self, offset: int, node_ids: Iterable[int] | None = None) -> bool:
        for node_id in node_ids if node_ids is not None else self.nodes:
            node = self.nodes[node_id]
            if node.core is None or len(node.committed) < offset:
                return False
        return True

    # ---- what must always hold

    def on_leader_changed(self, node: Node, effect: LeaderChanged) -> None:
        if effect.leader_id >= 0:
            known = self.leaders.setdefault(effect.leader_epoch, effect.leader_id)
            assert known == effect.leader_id, f"seed {self.seed}: two leaders in epoch {effect.leader_epoch}"
        if effect.leader_id == node.node_id:
            self.check_leader_completeness(node)

    def check_leader_completeness(self, leader: Node) -> None:
        """A leader has every entry that was ever committed."""
        log = {
            offset: entry for batch in leader.batches for offset, entry in enumerate(spread(batch), batch.base_offset)
        }
        for offset, entry in enumerate(self.history):
            if offset >= leader.platter.start_offset:
                assert log.get(offset) == entry, f"seed {self.seed}: leader {leader.node_id} lacks offset {offset}"

    def note_committed(self, node: Node, first: int) -> None:
        """Committed once, committed the same everywhere."""
        for offset in range(first, len(node.committed)):
            entry = node.committed[offset]
            if offset < len(self.history):
                assert self.history[offset] == entry, f"seed {self.seed}: offset {offset} differs on {node.node_id}"
            else:
                self.check_majority_has(node, entry, offset)
                self.history.append(entry)

    def check_majority_has(self, leader: Node, entry: LogBatch, offset: int) -> None:
        """What is newly committed (by a leader, first) is on the platter of a majority of the voters in force."""
        assert leader.core is not None
        voters = leader.core.voters.current
        platters = {node.voter.key: node.platter for node in self.nodes.values()} | self.lost_platters
        held = [
            key for key, platter in platters.items() if voters.contains(key) and has_durable(platter, offset, entry)
        ]
        count = len({key.node_id for key in held})
        assert count >= voters.majority_count, f"seed {self.seed}: offset {offset} is on {count} of {voters}"

    def check_node(self, node_id: int, core: RaftCore) -> None:
        """After a node's step: epoch and high watermark never go back; at most one node leads an epoch."""
        if self.nodes[node_id].core is not core:
            return  # it was killed amid the step
        epoch, high_watermark = core.leader_epoch, core.high_watermark
        assert epoch >= self.epochs.get(node_id, 0), f"seed {self.seed}: epoch of {node_id} went back"
        assert high_watermark >= self.watermarks.get(node_id, -1), f"seed {self.seed}: watermark went back"
        self.epochs[node_id] = epoch
        self.watermarks[node_id] = high_watermark
        if core.is_leader:
            other = self.leaders.setdefault(epoch, node_id)
            assert other == node_id, f"seed {self.seed}: {other} and {node_id} lead epoch {epoch}"

    def check_end(self) -> None:
        """All running nodes agree on what they hold committed."""
        for node in self.nodes.values():
            assert node.committed == self.history[: len(node.committed)], f"seed {self.seed}: {node.node_id} differs"


def has_durable(platter: Platter, offset: int, entry: LogBatch) -> bool:
    if offset < platter.start_offset or any(snapshot_id.offset > offset for snapshot_id in platter.snapshots):
        return True
    for batch in reversed(platter.batches):
        if batch.base_offset <= offset:
            return batch.last_offset >= offset and spread(batch)[offset - batch.base_offset] == entry
    return False


def spread(batch: LogBatch) -> list[LogBatch]:
    """Return an entry for each offset of a batch, so that histories can be compared by offset."""
    if batch.base_offset == batch.last_offset:
        return [batch]
    epoch, controls, data = batch.leader_epoch, batch.controls, batch.data
    return [
        LogBatch(offset, offset, epoch, controls, data) for offset in range(batch.base_offset, batch.last_offset + 1)
    ]


def note_controls(history: VoterHistory, batch: LogBatch) -> None:
    for offset, control in enumerate(batch.controls, batch.base_offset):
        if isinstance(control, KRaftVersion):
            history.add_kraft_version(offset, control.level)
        elif isinstance(control, Voters):
            history.add_voters(offset, control.voters)
