"""The replica fetchers of a broker; assigns each followed partition to a fetcher of its leader.

Each leader has num.replica.fetchers fetchers with one connection each; a hash of topic and partition chooses one. The
number can change while the broker runs. A partition is assigned in the step of a metadata change that sets its role,
so that a large change does not delay the fetches of the partitions that it has already made. Deviation: Apache Kafka
adds the followed partitions to fetchers after all of them are made. Here each at once, because the first records of
thousands of new partitions would wait until the last one is made.

Deviation: Apache Kafka stops fetching partitions whose ISR this broker has left during a controlled shutdown. Here they
are fetched until it stops, because it has less to fetch after its start; their leaders do not take it in again.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.replication.follower_log import FollowerLogs
from kafkapy.replication.partition import Role
from kafkapy.runtime.followers.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.replication.throttle import ReplicationThrottle
    from kafkapy.runtime.followers.session import PartitionKey
    from kafkapy.runtime.peer import Peer
    from kafkapy.seams import Clock
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

FetcherKey: TypeAlias = tuple[int, int]
"""(leader id, index of the fetcher)."""
HASH_FACTOR: Final = 31


class ReplicaFetchers:
    """The fetchers, by leader and index."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        log_manager: "LogManager",
        *,
        config: "Callable[[], BrokerConfig]",
        broker_epoch: Callable[[], int],
        new_peer: "Callable[[str, int], Peer]",
        flush: "Callable[[Log], Awaitable[None]]",
        clock: "Clock",
    ) -> None:
        """`flush(log)` makes a log durable (flush.messages)."""
        self.replica_manager = replica_manager
        self.logs = FollowerLogs(log_manager)
        self.config = config
        self.node_id = replica_manager.node_id
        self.broker_epoch = broker_epoch
        self.new_peer = new_peer
        self.flush = flush
        self.clock = clock
        self._listener_name = config().inter_broker_listener_name
        self._count_per_leader = config().replication.num_replica_fetchers
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._placed: dict[PartitionKey, tuple[HostedPartition, ReplicaFetcher]] = {}
        self._closed: list[ReplicaFetcher] = []
        self._is_stopped = False
        self.throttle: ReplicationThrottle | None = None
        """Removes partitions that are not in sync from requests; None without follower.replication.throttled.rate."""
        replica_manager.on_role_changed = self._place

    def maybe_resize(self) -> Iterator[None]:
        """Apply a change of num.replica.fetchers, in steps."""
        count = self.config().replication.num_replica_fetchers
        if self._is_stopped or count == self._count_per_leader:
            return
        self._count_per_leader = count
        for partition, _ in list(self._placed.values()):
            self._place(partition)
            yield
        for key in [key for key in self._fetchers if key[1] >= count]:
            fetcher = self._fetchers.pop(key)
            fetcher.close()
            self._closed.append(fetcher)

    async def stop(self) -> None:
        """Stop all fetchers."""
        self._is_stopped = True
        fetchers, self._fetchers = [*self._fetchers.values(), *self._closed], {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))

    def __iter__(self) -> "Iterator[tuple[FetcherKey, ReplicaFetcher]]":
        """Yield the fetchers with the leader and the index of each."""
        yield from list(self._fetchers.items())

    @property
    def failed_count(self) -> int:
        """The number of followed partitions that are no longer fetched, after a failure."""
        return sum(key not in fetcher for key, (_, fetcher) in self._placed.items())

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return the broker's address on the inter-broker listener; None while it is not registered."""
        broker = self.replica_manager.image.cluster.brokers.get(broker_id)
        endpoint = broker.endpoints.get(self._listener_name) if broker is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def _place(self, partition: "HostedPartition") -> None:
        """Assign a partition that is followed to a fetcher of its leader; remove it from the previous one."""
        if self._is_stopped:
            return
        key = (partition.topic_id, partition.topic_partition.partition)
        if partition.role is not Role.FOLLOWER or partition.leader_id < 0:
            self._detach(key)
            return
        fetcher = self._fetcher_for(partition)
        placed = self._placed.get(key)
        if placed is not None and placed[1] is not fetcher:
            placed[1].remove(key)
        self._placed[key] = (partition, fetcher)
        fetcher.add(key, partition)

    def _detach(self, key: "PartitionKey") -> None:
        placed = self._placed.pop(key, None)
        if placed is not None:
            placed[1].remove(key)

    def _fetcher_for(self, partition: "HostedPartition") -> ReplicaFetcher:
        topic, partition_id = partition.topic_partition
        number = (HASH_FACTOR * zlib.crc32(topic.encode()) + partition_id) % self._count_per_leader
        key = (partition.leader_id, number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(self, partition.leader_id)
        return fetcher
