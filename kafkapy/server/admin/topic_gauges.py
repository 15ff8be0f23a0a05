"""Topics under kafka_exporter's names: each broker tells of the partitions that it leads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.replica_manager import ReplicaManager

EXPORTER: Final = ""
PREFIX: Final = "kafka_topic_partition_"


def exporter_gauges(manager: "ReplicaManager", image: "MetadataImage") -> Iterator[Gauge | None]:
    yield Gauge(EXPORTER, "kafka_brokers", sum(not broker.fenced for broker in image.cluster.brokers.values()))
    counted: set[str] = set()
    for partition in list(manager.partitions):
        log = partition.log
        if not partition.is_leader or log is None:
            continue
        topic, number = partition.topic_partition
        if topic not in counted:
            counted.add(topic)
            found = image.topics.by_name.get(topic)
            if found is not None:
                yield Gauge(EXPORTER, "kafka_topic_partitions", len(found.partitions), (("topic", topic),))
        tags = (("partition", str(number)), ("topic", topic))
        replicas, in_sync = partition.replicas, len(partition.isr)
        yield Gauge(EXPORTER, f"{PREFIX}current_offset", log.high_watermark, tags)
        yield Gauge(EXPORTER, f"{PREFIX}oldest_offset", log.log_start_offset, tags)
        yield Gauge(EXPORTER, f"{PREFIX}leader", partition.leader_id, tags)
        yield Gauge(EXPORTER, f"{PREFIX}replicas", len(replicas), tags)
        yield Gauge(EXPORTER, f"{PREFIX}in_sync_replica", in_sync, tags)
        yield Gauge(EXPORTER, f"{PREFIX}leader_is_preferred", int(replicas[:1] == (partition.leader_id,)), tags)
        yield Gauge(EXPORTER, f"{PREFIX}under_replicated_partition", int(in_sync < len(replicas)), tags)
