"""Events that happen in any cluster, caused when a test asks: the broker's own code does them, no error is faked."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.embedded.faults.events import NotHere
from kafkapy.embedded.faults.rules import Elsewhere, FaultError, Faults
from kafkapy.errors import quoted

if TYPE_CHECKING:
    from kafkapy.embedded.faults.faulty_disk import DiskFault


class World(Protocol):
    """What events need of a broker or a cluster: which nodes run, their topics, leaders that can be moved."""

    def topics(self) -> list[str]:
        """Return the names of the topics that a broker knows."""
        ...

    def node_ids(self) -> list[int]:
        """Return the ids of the nodes that run, at least one. Raises RuntimeError or ClusterError if none does."""
        ...

    def run_at(self, node_id: int, event: str, *arguments: Any) -> Any:
        """Run an event of `EVENTS` at a broker; return its result. Raises what it raises."""
        ...

    def change_disk(self, node_id: int, fault: "DiskFault") -> None:
        """Change what is wrong with a broker's disk. Raises FaultError without disk_faults."""
        ...

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """Move the leadership of a partition to another broker; return it. Raises FaultError if there is none."""
        ...

    def lose_unsynced(self, node_id: int) -> int:
        """Crash a broker, cut off what was not synced, start it again; return how many bytes were lost."""
        ...


class ActingFaults(Faults):
    """Faults by name, and events. The methods of events block: in `async with`, call them by asyncio.to_thread.

    They return when the broker has done it; a client may learn of it later.
    """

    def __init__(self, on_first: Callable[[], None], world: World, elsewhere: Elsewhere | None = None) -> None:
        super().__init__(on_first, world.topics, elsewhere)
        self._world = world

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Make another replica the leader, as a reassignment does; return its broker. Raises FaultError.

        `to`: which; None: the next one. Needs a cluster.
        """
        self._leader(topic, partition)
        return self._world.move_leader(topic, partition, to)

    def lose_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """Move the coordinator of a group or of a transactional id to another broker.

        On a single broker it is unloaded, and loaded again from its log: requests that wait are answered
        NOT_COORDINATOR, and a group's members have new sessions. Raises FaultError.
        """
        if (group is None) == (transactional_id is None):
            raise FaultError("name either a group or a transactional_id, whose coordinator is to be lost")
        key = group if group is not None else transactional_id
        is_group = group is not None
        if len(self._world.node_ids()) > 1:
            topic, partition = self._run("partition_of_key", key, is_group)
            self.move_leader(topic, partition)
        else:
            self._run("reload_coordinator", key, is_group)

    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as another one with the same id does. Raises FaultError.

        An open transaction of it is aborted.
        """
        self._run("fence_producer", transactional_id)

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, as if its time-out had passed. Raises FaultError."""
        self._run("abort_transaction", transactional_id)

    def expire_member(self, group: str, *, member_id: str | None = None, client_id: str = "*") -> str:
        """End the session of a group's member, as if it had sent no heartbeat in time; return its id.

        Raises FaultError. `member_id`, or the first member whose client id is like `client_id`.
        """
        found: str = self._run("expire_member", group, member_id, client_id)
        return found

    def rebalance(self, group: str) -> None:
        """Make a group rebalance. Raises FaultError.

        Of a classic group all members have to join again. A group of the consumer protocol (KIP-848) gets another
        member for a moment.
        """
        self._run("rebalance", group)

    def corrupt(self, topic: str, partition: int = 0, offset: int = 0, *, node_id: int | None = None) -> None:
        """Change a byte on disk in the batch that has this offset: its checksum is wrong from then on.

        Of the leader's log, or of that of the node named. Raises FaultError.
        """
        leader = self._leader(topic, partition)
        self._world.run_at(self._node(leader if node_id is None else node_id), "corrupt", topic, partition, offset)

    # -- the disk -------------------------------------------------------------------------------------------------

    def fill_disk(self, *, room: int = 0, node_id: int | None = None) -> None:
        """Fill the disk up to `room` bytes: then each write that needs more room fails with ENOSPC.

        `node_id`: of one broker of a cluster; None: of each.
        """
        if room < 0:
            raise FaultError(f"room is a number of bytes, not {room}")
        self._change_disk(node_id, "fill", room)

    def fail_disk(self, directory: str | os.PathLike[str] | None = None, *, node_id: int | None = None) -> None:
        """Make each access to a file fail with EIO: in a log directory, or anywhere. Raises FaultError.

        A node whose metadata directory fails stops: `log.dirs` with two directories has another one. `node_id`: of one
        broker of a cluster; None: of each, or of the one that has the directory.
        """
        if directory is None:
            self._change_disk(node_id, "fail", "")
            return
        name = os.path.abspath(directory)
        known = {each: self._world.run_at(each, "log_directories") for each in self._nodes(node_id)}
        found = next((each for each, paths in known.items() if name in paths), None)
        if found is None:
            paths = [path for each in known.values() for path in each]
            raise FaultError(f"{name} is no log directory; there are: {', '.join(paths)}")
        self._change_disk(found, "fail", f"{name}/")

    def slow_disk(self, *, ms: int, node_id: int | None = None) -> None:
        """Delay each access to a file. `node_id`: of one broker of a cluster; None: of each."""
        if ms < 1:
            raise FaultError(f"ms is a number from 1 on, not {ms}")
        self._change_disk(node_id, "slow", ms)

    def mend_disk(self, *, node_id: int | None = None) -> None:
        """End fill_disk, fail_disk and slow_disk. A log directory that has failed is offline until `restart`."""
        self._change_disk(node_id, "mend", None)

    def lose_unsynced(self, *, node_id: int | None = None) -> int:
        """Crash the machine, lose what was not synced, start again; return how many bytes were lost.

        Acknowledged records are among them, as with Apache Kafka, which leaves syncing to the system and its replicas.
        Of a cluster `node_id` names the broker. Raises FaultError.
        """
        nodes = self._world.node_ids()
        if node_id is None and len(nodes) > 1:
            raise FaultError(f"node_id names the broker that crashes: one of {', '.join(map(str, nodes))}")
        return self._world.lose_unsynced(nodes[0] if node_id is None else self._node(node_id))

    def _change_disk(self, node_id: int | None, kind: str, value: int | str | None) -> None:
        for each in self._nodes(node_id):
            self._world.change_disk(each, (kind, value))

    def _nodes(self, node_id: int | None) -> list[int]:
        """Return the brokers that run, or the one that is named. Raises FaultError."""
        return self._world.node_ids() if node_id is None else [self._node(node_id)]

    def _leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition. Raises FaultError if it does not exist."""
        found: int = self._run("check_partition", topic, partition)
        return found

    def _node(self, node_id: int) -> int:
        """Return the id of a broker that runs. Raises FaultError for another one."""
        if node_id not in self._world.node_ids():
            running = ", ".join(map(str, self._world.node_ids()))
            raise FaultError(f"node {node_id} does not run here; brokers that do: {running}")
        return node_id

    def _run(self, event: str, *arguments: Any) -> Any:
        """Run an event at the broker that it belongs to; return its result. Raises FaultError if there is none."""
        complaint = NotHere(f"no broker runs for {quoted(event)}")
        for node_id in self._world.node_ids():
            try:
                return self._world.run_at(node_id, event, *arguments)
            except NotHere as error:
                complaint = error
        raise complaint
