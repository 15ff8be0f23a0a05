"""`broker.network` and `cluster.network`: a network that is cut, late or narrow, between nodes and to clients.

Bytes travel through proxies in this process, on loopback: what a peer sees is what a network does, not an error code.
"""

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafkapy.embedded.proxies import NOT_A_NODE, Proxies
from kafkapy.server.cluster.plan import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable

MS_PER_S: Final = 1000


class ClientProxy:
    """The proxy of `Broker(network_faults=True)`: clients connect to `port`, and reach the broker at `broker_port`."""

    def __init__(self, node_id: int, port: int) -> None:
        """`port`: 0 for a free one. Raises OSError, ClusterError."""
        self.broker_port, free = free_ports(2)
        self.port = port or free
        self._proxies = Proxies(is_between_nodes=False)
        self.network = ClientNetwork(self._proxies, node_id)
        try:
            self._proxies.forward(node_id, self.port, self.broker_port)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def properties(self, protocol: str) -> dict[str, str]:
        """Return Kafka's keys for a broker behind the proxy. `protocol`: of its clients."""
        return {
            "listeners": f"{protocol}://{HOST}:{self.broker_port}",
            "advertised.listeners": f"{protocol}://{self.bootstrap_servers}",
        }

    def close(self) -> None:
        self._proxies.close()


class ClientNetwork:
    """The network between a broker and its clients: of `Broker(network_faults=True)`."""

    def __init__(self, proxies: Proxies, node_id: int) -> None:
        self._proxies = proxies
        self._node_id = node_id

    def cut(self) -> None:
        """End all connections, and each new one at once, until `heal`."""
        self._proxies.partition({NOT_A_NODE}, {self._node_id})

    def hold(self) -> None:
        """Let nothing pass until `heal`; no connection ends, as with a cable that is pulled."""
        self._proxies.hold([NOT_A_NODE], [self._node_id])
        self._proxies.hold([self._node_id], [NOT_A_NODE])

    def delay(self, *, ms: int) -> None:
        """Let bytes arrive so much later, in both directions, until `heal`."""
        self._slow(ms, None)

    def limit(self, *, bytes_per_s: int) -> None:
        """Let so many bytes pass in a second, each way and connection, until `heal`."""
        self._slow(0, bytes_per_s)

    def heal(self) -> None:
        """End all of these."""
        self._proxies.heal()

    def _slow(self, ms: int, bytes_per_s: int | None) -> None:
        _check(ms, bytes_per_s)
        for source, target in ((NOT_A_NODE, self._node_id), (self._node_id, NOT_A_NODE)):
            self._proxies.slow([source], [target], delay_s=ms / MS_PER_S, bytes_per_s=bytes_per_s)


class NodeNetwork:
    """The network between the nodes of a cluster of processes. Clients reach all nodes."""

    def __init__(self, proxies: Proxies, check_node: "Callable[[int], object]") -> None:
        """check_node: raises ClusterError for a node that there is not."""
        self._proxies = proxies
        self._check_node = check_node

    def cut(self, *groups: Collection[int]) -> None:
        """As Cluster.partition: nodes reach only their own group, until `heal`."""
        for node_id in itertools.chain(*groups):
            self._check_node(node_id)
        self._proxies.partition(*groups)

    def delay(self, sources: Collection[int], targets: Collection[int], *, ms: int) -> None:
        """Let what the sources send to the targets arrive so much later, until `heal`. Raises ClusterError."""
        self._slow(sources, targets, ms, None)

    def limit(self, sources: Collection[int], targets: Collection[int], *, bytes_per_s: int) -> None:
        """Let so many bytes pass in a second, on each connection, until `heal`. Raises ClusterError."""
        self._slow(sources, targets, 0, bytes_per_s)

    def heal(self) -> None:
        """End all of these, and `Cluster.partition`."""
        self._proxies.heal()

    def _slow(self, sources: Collection[int], targets: Collection[int], ms: int, bytes_per_s: int | None) -> None:
        _check(ms, bytes_per_s)
        for node_id in (*sources, *targets):
            self._check_node(node_id)
        self._proxies.slow(sources, targets, delay_s=ms / MS_PER_S, bytes_per_s=bytes_per_s)


def _check(ms: int, bytes_per_s: int | None) -> None:
    if bytes_per_s is None and ms < 1:
        raise ValueError(f"ms is a number from 1 on, not {ms}")
    if bytes_per_s is not None and bytes_per_s < 1:
        raise ValueError(f"bytes_per_s is a number from 1 on, not {bytes_per_s}")
