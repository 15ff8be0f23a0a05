"""Faults for clusters of Raft cores: power cuts amid a write of the quorum-state file, lost disks, clocks that jump.

`DiskNode` keeps its election state in the production code's QuorumStateFile on a simulated disk, and its power may be
cut at any change of that disk. `Faults` draws what goes wrong next from the cluster's seed.
"""

from collections.abc import Callable
from typing import Any, Final

from kafkapy.raft.effects import ElectionState, PersistElection
from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest
from kafkapy.storage.metadata.quorum_state import QuorumStateFile, decode_quorum_state, encode_quorum_state
from tests.simulator.disk import Keep, SimCrash, SimDisk
from tests.simulator.raft_cluster import Cluster, Node

DIRECTORY: Final = "/data"
KEEPS: Final[tuple[Keep, ...]] = ("all", "none", "torn", "reordered")
CHANGES_OF_A_WRITE: Final = 5
LONGEST_JUMP: Final = 7
"""Of a clock, in fetch time-outs."""


class DiskNode(Node):
    """A node whose election state is in a file. `tears`: how likely the power is cut amid a write of it."""

    def __init__(self, cluster: Cluster, node_id: int, *, tears: float = 0.0) -> None:
        super().__init__(cluster, node_id)
        self._tears = tears
        self._new_disk()

    def _new_disk(self) -> None:
        self._disk = SimDisk(self.cluster.rng.getrandbits(32))
        self._disk.make_directory(DIRECTORY)
        self._disk.sync_all()
        self._possible = [ElectionState()]
        """What may be in the file: the last state that was written whole, and one whose write was cut off."""

    def lose_disk(self) -> None:
        super().lose_disk()
        self._new_disk()

    def step(self, event: Any) -> None:
        try:
            super().step(event)
        except SimCrash:
            self.kill()
            self._disk.crash(self.cluster.rng.choice(KEEPS))
            delay_ms = self.cluster.rng.randrange(1, self.cluster.patience_ms)
            self.cluster.after(delay_ms, lambda: self.is_running or self.start())

    def persist(self, effect: PersistElection) -> None:
        rng = self.cluster.rng
        state, _ = decode_quorum_state(encode_quorum_state(effect.state, effect.kraft_version, effect.voter_ids))
        self._possible = [self._possible[0], state]
        if rng.random() < self._tears:
            self._disk.crash_after = self._disk.changes + rng.randrange(CHANGES_OF_A_WRITE)
        self._file().write(effect.state, effect.kraft_version, effect.voter_ids)
        self._disk.crash_after = None
        self._possible = [state]
        super().persist(effect)

    def found_election(self) -> ElectionState:
        """Return what the file says. It is whole after any crash; the state is the old one or the new one."""
        found = self._file().read()
        state = found[0] if found is not None else ElectionState()
        assert state in self._possible, f"seed {self.cluster.seed}: {state} is none of {self._possible}"
        self._possible = [state]
        self.platter.election = state
        return state

    def _file(self) -> QuorumStateFile:
        return QuorumStateFile(self._disk, DIRECTORY)


class Faults:
    """What may happen to a cluster; each method does one thing, and restarts what it stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.rng

    def some(self, *faults: Callable[[], None], count: int) -> None:
        for _ in range(count):
            self._rng.choice(faults)()
            self._cluster.run_for(self._rng.randrange(50, self._cluster.patience_ms // 2))

    def heal(self) -> None:
        cluster = self._cluster
        cluster.partitioned, cluster.loss, cluster.duplicates = set(), 0.0, 0.0
        for node in cluster.nodes.values():
            if not node.is_running:
                node.start()

    def jump_clock(self) -> None:
        node = self._rng.choice(list(self._cluster.nodes.values()))
        patience_ms = self._cluster.patience_ms
        node.jump(self._rng.randrange(1, self._rng.choice((200, patience_ms, LONGEST_JUMP * patience_ms))))

    def jump_all_clocks(self) -> None:
        """As on a host whose virtual machines are all suspended."""
        duration_ms = self._rng.randrange(LONGEST_JUMP * self._cluster.patience_ms)
        for node in self._cluster.nodes.values():
            node.jump(duration_ms + self._rng.randrange(50))

    def restart(self) -> None:
        node = self._rng.choice(list(self._cluster.nodes.values()))
        if node.is_running:
            node.kill()
            self._cluster.run_for(self._rng.randrange(self._cluster.patience_ms))
        if not node.is_running:
            node.start()

    def cut_off(self) -> None:
        count = self._rng.randrange(1, len(self._cluster.nodes))
        self._cluster.partitioned = set(self._rng.sample(list(self._cluster.nodes), count))
        self._cluster.run_for(self._rng.randrange(100, 2 * self._cluster.patience_ms))
        self._cluster.partitioned = set()

    def change_voters_amid_a_cut(self) -> None:
        """Ask a leader that reaches a minority, perhaps, for several changes of the voters."""
        cluster, leader = self._cluster, self._cluster.leader()
        if leader is None or leader.core is None:
            return
        others = [node_id for node_id in leader.core.voters.current.ids if node_id != leader.node_id]
        near = self._rng.sample(others, min(len(others), self._rng.randrange(2)))
        cluster.partitioned = {leader.node_id, *near}
        for _ in range(3):
            self.change_voters()
            cluster.run_for(self._rng.randrange(100))
        cluster.run_for(self._rng.randrange(100, 2 * self._cluster.patience_ms))
        cluster.partitioned = set()

    def lose_disk(self) -> None:
        """Take a node's disk, if what is committed is certain to be on a majority of those that remain.

        The node comes back under another directory id and is no voter. No second disk is lost before a change of the
        voters has replaced the first.
        """
        cluster, leader = self._cluster, self._cluster.leader()
        if leader is None or leader.core is None or any(not node.is_running for node in cluster.nodes.values()):
            return
        voters = leader.core.voters
        if self.usurped() or len(voters.current) < 3 or voters.current_offset >= leader.core.high_watermark:
            return
        node = self._rng.choice(list(cluster.nodes.values()))
        node.lose_disk()
        cluster.run_for(self._rng.randrange(cluster.patience_ms))
        if not node.is_running:
            node.start()

    def usurped(self) -> list[Node]:
        """Return the nodes whose id is a voter's under a directory that is gone."""
        leader = self._cluster.leader()
        if leader is None or leader.core is None:
            return []
        voters = leader.core.voters.current
        return [
            node
            for node in self._cluster.nodes.values()
            if node.node_id in voters.ids and not voters.contains(node.voter.key)
        ]

    def replace(self) -> None:
        """Remove the voter of a directory that is gone, if there is one; the next change of voters may add it anew."""
        leader = self._cluster.leader()
        for node in self.usurped():
            if leader is not None and leader.core is not None:
                former = leader.core.voters.current.get(node.node_id)
                assert former is not None
                self._cluster.client_request(leader, RemoveVoterRequest(voter=former.key))

    def change_voters(self) -> None:
        """Ask the leader to add or to remove a voter; it may refuse."""
        self.replace()
        leader = self._cluster.leader()
        if leader is None or leader.core is None:
            return
        voters = leader.core.voters.current
        outsiders = [node for node in self._cluster.nodes.values() if node.node_id not in voters.ids]
        if outsiders and (len(voters) <= 3 or self._rng.random() < 0.5):
            added = self._rng.choice(outsiders).voter
            self._cluster.client_request(leader, AddVoterRequest(voter=added, timeout_ms=5000))
        elif len(voters) > 1:
            removed = self._rng.choice(list(voters)).key
            self._cluster.client_request(leader, RemoveVoterRequest(voter=removed))
