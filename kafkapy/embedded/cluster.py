"""`kafkapy.Cluster`: several nodes for a test, each a process of its own.

    with Cluster(3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.partition({1}, {2, 3})

Node ids: brokers are 1, 2, ...; separate controllers, if requested, are 101, 102, ... Without a data_dir the data is in
a temporary directory that is removed with the cluster, and the nodes are killed at the end; they reach each other
through proxies in this process, so that their network can be partitioned.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from kafkapy.embedded.in_process import InProcessCluster
from kafkapy.embedded.proxies import Proxies
from kafkapy.errors import KafkapyError
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.local import START_TIMEOUT_S, LocalCluster
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.server.cluster.processes import POLL_S

T = TypeVar("T")

QUESTION_TIMEOUT_S: Final = 30.0


class Cluster:
    """Brokers and controllers on this machine; a context manager. `properties` are Kafka's keys, for every node."""

    def __init__(
        self,
        broker_count: int = 3,
        *,
        controller_count: int = 0,
        data_dir: str | Path | None = None,
        properties: Mapping[str, object] | None = None,
        in_process: bool = False,
    ) -> None:
        """Without separate controllers, the first three brokers are also controllers (if fewer than three, the first).

        in_process: all nodes on one event loop in a thread; they cannot be killed or paused, but isolated from each
        other.
        """
        self._broker_count = broker_count
        self._controller_count = controller_count
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._properties = {key: _text(value) for key, value in (properties or {}).items()}
        self._is_in_process = in_process
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._proxies: Proxies | None = None
        self._found: LocalCluster | InProcessCluster | None = None
        self._paused: set[int] = set()

    def __enter__(self) -> Self:
        try:
            found = self._open()
            self._found = InProcessCluster(found) if self._is_in_process else found
            self._found.up(START_TIMEOUT_S)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers, comma-separated: the address for clients."""
        return self._cluster.plan.bootstrap_servers

    @property
    def bootstrap_controllers(self) -> str:
        """`host:port` of all controllers, for tools that take --bootstrap-controller."""
        return self._cluster.plan.bootstrap_controllers

    @property
    def cluster_id(self) -> str:
        return self._cluster.plan.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        return [node.node_id for node in self._cluster.plan.brokers]

    @property
    def controller_ids(self) -> list[int]:
        return [node.node_id for node in self._cluster.plan.controllers]

    @property
    def controller(self) -> int:
        """The active controller; waits for one. Raises ClusterError after 30 s."""

        def find() -> int | None:
            for node in self._cluster.plan.controllers:
                if self._answers(node.node_id):
                    leader_id, _ = queries.controllers(queries.asking((node.address[0], node.controller_port)))
                    if leader_id >= 0 and self._answers(leader_id):
                        return leader_id
            return None

        return self._until(find, "there is no active controller")

    def address_of(self, node_id: int) -> str:
        """Return a node's `host:port`: a broker's client listener, else its controller listener."""
        host, port = self._cluster.plan.node(node_id).address
        return f"{host}:{port}"

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition; waits for a leader that runs. Raises ClusterError after 30 s."""

        def find() -> int | None:
            leader = self.partitions().leaders.get(topic, {}).get(partition, -1)
            return leader if self._answers(leader) else None

        return self._until(find, f"nobody leads {topic}-{partition}")

    def partitions(self) -> queries.TopicPartitions:
        """Return the partitions of all topics, from a running broker. Raises ClusterError after 30 s."""

        def find() -> queries.TopicPartitions | None:
            for broker in self._cluster.plan.brokers:
                if self._answers(broker.node_id):
                    return queries.partitions(queries.asking(broker.address))
            return None

        return self._until(find, "no broker answers")

    def kill(self, node_id: int) -> None:
        """Kill a node as in a crash (SIGKILL)."""
        self._paused.discard(node_id)
        self._cluster.kill(node_id)

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly (SIGTERM)."""
        self._cluster.stop(node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped; return once it answers, unfenced if it is a broker."""
        self._cluster.start(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node with its connections open (SIGSTOP)."""
        self._cluster.pause(node_id)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a paused node (SIGCONT)."""
        self._cluster.resume(node_id)
        self._paused.discard(node_id)

    def partition(self, *groups: Collection[int], one_way: bool = False) -> None:
        """Partition the network: nodes reach only their own group, as in partition({1}, {2, 3}); clients reach all.

        Connections between the groups end, and new ones are closed at once. one_way: none ends, but what the nodes of
        the first group send to the others, requests and responses, arrives only after `heal`.
        """
        self._cluster.partition(*groups, one_way=one_way)

    def heal(self) -> None:
        """End all network partitions."""
        self._cluster.heal()

    def add(self) -> int:
        """Add a broker and return its id once it is unfenced. It gets only new partitions."""
        return self._cluster.add().node_id

    def add_controller(self) -> int:
        """Add a separate controller and return its id once it is a voter."""
        return self._cluster.add_controller().node_id

    def log_of(self, node_id: int) -> str:
        """Return what a node has printed so far."""
        return self._cluster.log_of(node_id)

    @property
    def _cluster(self) -> "LocalCluster | InProcessCluster":
        if self._found is None:
            raise RuntimeError("this cluster is not running: use it as `with Cluster(3) as cluster:`")
        return self._found

    def _answers(self, node_id: int) -> bool:
        """Return whether a node should answer: it runs, and is not paused."""
        return node_id not in self._paused and self._cluster.is_running(node_id)

    def _until(self, find: Callable[[], T | None], complaint: str) -> T:
        """Poll `find` until it does not return None; errors of a node that stops count as None."""
        deadline = time.monotonic() + QUESTION_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError, KafkapyError):
                found = find()
                if found is not None:
                    return found
            if time.monotonic() > deadline:
                raise ClusterError(f"{complaint} after {QUESTION_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _open(self) -> LocalCluster:
        """Return the cluster of the given directory, created if there is none; else of a new temporary one."""
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kafkapy-cluster-")
            directory = Path(self._temporary.name)
            self._proxies = Proxies() if not self._is_in_process else None
        elif (self._data_dir / "cluster.json").exists():
            return LocalCluster.load(self._data_dir)
        else:
            directory = self._data_dir
        return LocalCluster.create(
            directory,
            broker_count=self._broker_count,
            controller_count=self._controller_count,
            properties=self._properties,
            proxies=self._proxies,
        )

    def _close(self) -> None:
        found, self._found = self._found, None
        temporary, self._temporary = self._temporary, None
        proxies, self._proxies = self._proxies, None
        with _all(self._paused, temporary, proxies):
            if found is not None and temporary is not None:
                found.kill_all()
            elif found is not None:
                for node_id in self._paused:
                    found.resume(node_id)
                found.down()


@contextlib.contextmanager
def _all(
    paused: set[int], temporary: "tempfile.TemporaryDirectory[str] | None", proxies: Proxies | None
) -> Iterator[None]:
    """Clear the paused nodes, close the proxies, remove the temporary directory, even if ending the nodes fails."""
    try:
        yield
    finally:
        paused.clear()
        if proxies is not None:
            proxies.close()
        if temporary is not None:
            temporary.cleanup()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
