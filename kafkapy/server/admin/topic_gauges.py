"""Topics under kafka_exporter's names: each broker reports the partitions that it leads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge, Row

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.replica_manager import ReplicaManager

EXPORTER: Final = ""
COLUMNS: Final = tuple(
    (EXPORTER, f"kafka_topic_partition_{name}")
    for name in (
        "current_offset",
        "oldest_offset",
        "leader",
        "replicas",
        "in_sync_replica",
        "leader_is_preferred",
        "under_replicated_partition",
    )
)


def exporter_gauges(manager: "ReplicaManager", image: "MetadataImage") -> Iterator[Gauge | Row]:
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
        values = (
            log.high_watermark,
            log.log_start_offset,
            partition.leader_id,
            len(replicas),
            in_sync,
            int(replicas[:1] == (partition.leader_id,)),
            int(in_sync < len(replicas)),
        )
        yield Row(COLUMNS, values, tags)
