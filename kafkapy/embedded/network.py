"""Networks that are cut, late or narrow: `broker.network`, `cluster.network` between nodes, `cluster.client_network`.

Bytes travel through proxies in this process, on loopback: what a peer sees is what a network does, not an error code.
"""

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafkapy.embedded.proxies import NOT_A_NODE, Proxies
from kafkapy.server.cluster.plan import HOST, ClusterError, free_ports

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
        self._network = ClusterClientNetwork(proxies, lambda: [node_id])

    def cut(self) -> None:
        """End all connections, and each new one at once, until `heal`."""
        self._network.cut()

    def hold(self) -> None:
        """Stop all bytes until `heal`; connections stay open, as when a cable is pulled."""
        self._network.hold()

    def delay(self, *, ms: int) -> None:
        """Delay bytes in both directions until `heal`."""
        self._network.delay(ms=ms)

    def limit(self, *, bytes_per_s: int) -> None:
        """Limit the bytes per second, in each direction of each connection, until `heal`."""
        self._network.limit(bytes_per_s=bytes_per_s)

    def heal(self) -> None:
        """End all of these."""
        self._network.heal()


class NodeNetwork:
    """The network between the nodes of a cluster of processes. Clients reach all nodes."""

    def __init__(self, proxies: Proxies, check_node: "Callable[[int], object]") -> None:
        """check_node: raises ClusterError for a node that does not exist."""
        self._proxies = proxies
        self._check_node = check_node

    def cut(self, *groups: Collection[int]) -> None:
        """Like Cluster.partition: nodes reach only their own group, until `heal`."""
        for node_id in itertools.chain(*groups):
            self._check_node(node_id)
        self._proxies.partition(*groups)

    def delay(self, sources: Collection[int], targets: Collection[int], *, ms: int) -> None:
        """Delay what the sources send to the targets until `heal`. Raises ClusterError."""
        self._slow(sources, targets, ms, None)

    def limit(self, sources: Collection[int], targets: Collection[int], *, bytes_per_s: int) -> None:
        """Limit the bytes per second of each connection until `heal`. Raises ClusterError."""
        self._slow(sources, targets, 0, bytes_per_s)

    def heal(self) -> None:
        """End all of these, and `Cluster.partition`."""
        self._proxies.heal()

    def _slow(self, sources: Collection[int], targets: Collection[int], ms: int, bytes_per_s: int | None) -> None:
        _check(ms, bytes_per_s)
        for node_id in (*sources, *targets):
            self._check_node(node_id)
        self._proxies.slow(sources, targets, delay_s=ms / MS_PER_S, bytes_per_s=bytes_per_s)


class ClusterClientNetwork:
    """The network between clients and the nodes of `Cluster(network_faults=True)`; nodes reach each other.

    Methods take the ids of brokers; without any they affect all. They raise ClusterError for an id of no broker.
    """

    def __init__(self, proxies: Proxies, broker_ids: "Callable[[], list[int]]") -> None:
        self._proxies = proxies
        self._broker_ids = broker_ids
        self._cut: set[int] = set()

    def cut(self, *node_ids: int) -> None:
        """End the connections of clients to these nodes, and each new one at once, until `heal`."""
        self._cut.update(self._checked(node_ids))
        # a copy: it is read later, in the proxies' thread, and `cut` with `heal` right after it ends connections too
        self._proxies.partition({NOT_A_NODE}, set(self._cut))

    def hold(self, *node_ids: int) -> None:
        """Stop all bytes until `heal`; connections stay open, as when a cable is pulled."""
        targets = self._checked(node_ids)
        self._proxies.hold([NOT_A_NODE], targets)
        self._proxies.hold(targets, [NOT_A_NODE])

    def delay(self, *node_ids: int, ms: int) -> None:
        """Delay bytes in both directions until `heal`."""
        self._slow(node_ids, ms, None)

    def limit(self, *node_ids: int, bytes_per_s: int) -> None:
        """Limit the bytes per second, in each direction of each connection, until `heal`."""
        self._slow(node_ids, 0, bytes_per_s)

    def heal(self) -> None:
        """End all of these; what was cut, delayed or limited between nodes stays."""
        self._cut.clear()
        self._proxies.heal()

    def _slow(self, node_ids: Collection[int], ms: int, bytes_per_s: int | None) -> None:
        _check(ms, bytes_per_s)
        targets = self._checked(node_ids)
        for sources, receivers in (([NOT_A_NODE], targets), (targets, [NOT_A_NODE])):
            self._proxies.slow(sources, receivers, delay_s=ms / MS_PER_S, bytes_per_s=bytes_per_s)

    def _checked(self, node_ids: Collection[int]) -> list[int]:
        brokers = self._broker_ids()
        for node_id in node_ids:
            if node_id not in brokers:
                known = ", ".join(map(str, brokers))
                raise ClusterError(f"there is no broker {node_id}: this cluster has the brokers {known}")
        return list(node_ids) or brokers


def _check(ms: int, bytes_per_s: int | None) -> None:
    if bytes_per_s is None and ms < 1:
        raise ValueError(f"ms is a number from 1 on, not {ms}")
    if bytes_per_s is not None and bytes_per_s < 1:
        raise ValueError(f"bytes_per_s is a number from 1 on, not {bytes_per_s}")
