"""Faults for three nodes, in an order and on nodes that a seed decides, each healed before the next one.

A fault is a function that harms some nodes, a pause, and what heals them. The nodes are chosen by what they are at that
moment: leader, follower, controller; so runs of one seed differ in what happens, but not in what is tried.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from kafkapy.server.process.failpoints import VARIABLE
from kafkapy.server.process.system_clock import CLOCK_OFFSET
from tests.support.mounted_disks import MountedDisk
from tests.support.proxied_nodes import NODE_IDS, START_S, ProxiedNode, ProxiedNodes

FAILPOINTS = (
    "log.index.between",
    "log.flush.after_files",
    "log.truncate.after_cut",
    "log.snapshot.before_write",
    "disk.replace.before_rename",
    "disk.replace.after_rename",
    "quorum.state.before_write",
    "quorum.state.after_write",
    "quorum.log.before_append",
    "quorum.log.after_append",
    "quorum.log.before_flush",
    "quorum.log.after_flush",
    "quorum.snapshot.before_rename",
    "quorum.snapshot.after_rename",
)
CLOCK_OFFSETS_MS = (-60_000, 0, 60_000)
Fault = Callable[["Chaos"], str]


class Chaos:
    """Harms and heals the nodes. `history`: what was done, in words."""

    def __init__(
        self, cluster: ProxiedNodes, topics: Sequence[str], seed: int, disks: Mapping[int, MountedDisk] | None = None
    ) -> None:
        """`disks`: each node's own, if it has one, by node id."""
        self.cluster = cluster
        self.disks = disks or {}
        self.random = random.Random(seed)
        self.history: list[str] = []
        self._topics = topics
        self._started_at = time.monotonic()

    def run(self, fault: Fault) -> None:
        """Harm some nodes, wait, heal all."""
        started_s = time.monotonic() - self._started_at
        output = fault(self)
        self.history.append(f"{started_s:6.1f} s: {output}")
        self.heal()

    def heal(self) -> None:
        """Have all nodes run, reach each other, and answer."""
        self.cluster.proxies.heal()
        for node in self.cluster.nodes.values():
            if node.is_paused:
                node.resume()
        for node_id, disk in self.disks.items():
            if disk.has_failed:
                self.cluster.nodes[node_id].kill()
            disk.repair()
        for node in self.cluster.nodes.values():
            if node.more_environment.pop(VARIABLE, None) is not None:
                node.kill()
            if node.has_ended:
                node.launch()
        for node in self.cluster.nodes.values():
            node.wait_until_ready(START_S)

    def wait(self, min_s: float, max_s: float) -> None:
        """Let time pass, of which only the order of events may depend."""
        time.sleep(self.random.uniform(min_s, max_s))

    def a_node(self) -> ProxiedNode:
        """Return the leader of some partition, the controller, or a follower of both."""
        leader = self.cluster.leader_of(self.random.choice(self._topics), 0)
        controller = self.cluster.controller()
        followers = [node_id for node_id in NODE_IDS if node_id not in (leader, controller)]
        wanted = self.random.choice((leader, controller, *followers[:1]))
        return self.cluster.nodes[wanted if wanted is not None else self.random.choice(NODE_IDS)]

    def others_than(self, node: ProxiedNode) -> list[int]:
        return [node_id for node_id in NODE_IDS if node_id != node.node_id]


def kill_one(chaos: Chaos) -> str:
    node = chaos.a_node()
    node.kill()
    chaos.wait(0, 6)
    return f"killed {node.node_id}"


def kill_two(chaos: Chaos) -> str:
    spared = chaos.a_node()
    for node_id in chaos.others_than(spared):
        chaos.cluster.nodes[node_id].kill()
    chaos.wait(0, 4)
    return f"killed all but {spared.node_id}"


def kill_all(chaos: Chaos) -> str:
    for node in chaos.cluster.nodes.values():
        node.kill()
    return "killed all"


def kill_at_failpoint(chaos: Chaos) -> str:
    """Start a node that kills itself at a failpoint; it may get there during its start, later, or never."""
    node = chaos.a_node()
    failpoint = f"{chaos.random.choice(FAILPOINTS)}=kill@{chaos.random.randrange(1, 6)}"
    node.kill()
    node.more_environment[VARIABLE] = failpoint
    node.launch()
    deadline = time.monotonic() + chaos.random.uniform(4, 8)
    while not node.has_ended and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"{node.node_id} at {failpoint}: {'killed' if node.has_ended else 'not reached'}"


def stop_one(chaos: Chaos) -> str:
    node = chaos.a_node()
    node.stop(timeout_s=START_S)
    return f"stopped {node.node_id}"


def pause_one(chaos: Chaos) -> str:
    node = chaos.a_node()
    node.pause()
    chaos.wait(1, 9)
    return f"paused {node.node_id}"


def cut_one_off(chaos: Chaos) -> str:
    node = chaos.a_node()
    chaos.cluster.proxies.partition({node.node_id}, chaos.others_than(node))
    chaos.wait(1, 9)
    return f"cut {node.node_id} off"


def cut_all_off(chaos: Chaos) -> str:
    chaos.cluster.proxies.partition(*({node_id} for node_id in NODE_IDS))
    chaos.wait(1, 6)
    return "cut all off from each other"


def cut_a_pair(chaos: Chaos) -> str:
    """Two nodes do not reach each other; both reach the third."""
    node = chaos.a_node()
    between = chaos.random.choice(chaos.others_than(node))
    end = next(node_id for node_id in chaos.others_than(node) if node_id != between)
    chaos.cluster.proxies.hold({node.node_id}, {end})
    chaos.cluster.proxies.hold({end}, {node.node_id})
    chaos.wait(1, 9)
    return f"held what {node.node_id} and {end} send each other"


def lose_what_one_sends(chaos: Chaos) -> str:
    node = chaos.a_node()
    chaos.cluster.proxies.hold({node.node_id}, chaos.others_than(node))
    chaos.wait(1, 9)
    return f"held what {node.node_id} sends"


def lose_what_one_is_sent(chaos: Chaos) -> str:
    node = chaos.a_node()
    chaos.cluster.proxies.hold(chaos.others_than(node), {node.node_id})
    chaos.wait(1, 9)
    return f"held what {node.node_id} is sent"


def slow_one_down(chaos: Chaos) -> str:
    node = chaos.a_node()
    chaos.cluster.proxies.slow(chaos.others_than(node), {node.node_id}, delay_s=0.2, bytes_per_s=20_000)
    chaos.wait(3, 9)
    return f"slowed down what {node.node_id} is sent"


def change_a_clock(chaos: Chaos) -> str:
    """Restart a node whose wall clock is a minute ahead or behind."""
    node = chaos.a_node()
    offset_ms = chaos.random.choice(CLOCK_OFFSETS_MS)
    node.kill()
    node.more_environment[CLOCK_OFFSET] = str(offset_ms)
    return f"started {node.node_id} with its clock {offset_ms // 1000} s off"


def fill_a_disk(chaos: Chaos) -> str:
    node = chaos.a_node()
    chaos.disks[node.node_id].fill()
    chaos.wait(1, 8)
    return f"filled the disk of {node.node_id}"


def break_a_disk(chaos: Chaos) -> str:
    """A disk takes no more writes; the node is started on a repaired one, without what was not synced."""
    node = chaos.a_node()
    chaos.disks[node.node_id].fail_writes()
    chaos.wait(1, 8)
    return f"broke the disk of {node.node_id}, which {'ended' if node.has_ended else 'goes on'}"


def pause_all_in_turn(chaos: Chaos) -> str:
    """So that leadership moves from node to node, and comes back."""
    for node_id in chaos.random.sample(NODE_IDS, len(NODE_IDS)):
        chaos.cluster.nodes[node_id].pause()
        chaos.wait(3, 5)
        chaos.cluster.nodes[node_id].resume()
    return "paused one after the other"


KILLS: Sequence[Fault] = (kill_one, kill_two, kill_all, stop_one)
FAULTS: dict[str, Sequence[Fault]] = {
    "kills": KILLS,
    "failpoints": (kill_at_failpoint,),
    "pauses": (pause_one, pause_all_in_turn, slow_one_down),
    "partitions": (cut_one_off, cut_all_off, cut_a_pair, lose_what_one_sends, lose_what_one_is_sent),
    "disks": (fill_a_disk, break_a_disk, kill_one),
    "clocks": (change_a_clock, pause_one, cut_one_off, kill_one),
}
SHORT_FAULTS: dict[str, Sequence[Fault]] = {
    "kills": (*KILLS, kill_at_failpoint),
    "pauses-partitions-and-clocks": (*FAULTS["pauses"], *FAULTS["partitions"], *FAULTS["clocks"]),
    "disks": FAULTS["disks"],
}
"""All of them in fewer runs: the start and the check of a run take twice as long as 25 s of faults."""
NEED_DISKS = frozenset((fill_a_disk, break_a_disk))
ALL = tuple(dict.fromkeys(fault for faults in FAULTS.values() for fault in faults if fault not in NEED_DISKS))
