"""The small text files of a log directory: offset checkpoints, leader epochs, partition.metadata, meta.properties.

A checkpoint is a line with the version, 0, a line with the number of entries, and one line per entry:

    0                                       recovery-point-offset-checkpoint: everything below is durable
    2                                       log-start-offset-checkpoint: the start after DeleteRecords
    orders 0 42                             replication-offset-checkpoint: the high watermark
    orders 1 7                              cleaner-offset-checkpoint: a compacted log is clean below it

leader-epoch-checkpoint has "epoch start_offset" lines. Checkpoints are replaced atomically, so never read half-written.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.leader_epochs import EpochEntry
from kafkapy.types import ZERO_UUID, TopicPartition, Uuid, uuid_from_string, uuid_to_string

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"
META_PROPERTIES_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
CHECKPOINT_VERSION: Final = 0


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the bytes of a checkpoint with these entries."""
    entries = list(lines)
    return "\n".join((str(CHECKPOINT_VERSION), str(len(entries)), *entries, "")).encode("utf-8")


def decode_checkpoint(data: bytes, path: str) -> list[str]:
    """Return the entries of a checkpoint; an empty file has none. Raises CheckpointError."""
    try:
        lines = data.decode("utf-8").splitlines()
        if len(lines) < 2:
            return []
        version, count = int(lines[0]), int(lines[1])
    except ValueError as error:
        raise CheckpointError(f"malformed checkpoint {path}") from error
    if version != CHECKPOINT_VERSION:
        raise CheckpointError(f"version {version} in checkpoint {path}, which must be {CHECKPOINT_VERSION}")
    if len(lines) - 2 != count:
        raise CheckpointError(f"{len(lines) - 2} entries in checkpoint {path}, which announces {count}")
    return lines[2:]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def offsets_of(lines: Iterable[str], path: str) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint's entries. Raises CheckpointError."""
    offsets = {}
    for line in lines:
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = found = int(offset)
        except ValueError as error:
            raise CheckpointError(f"malformed line in checkpoint {path}: {quoted(line)}") from error
        if found < 0:
            raise CheckpointError(f"negative number in checkpoint {path}: {quoted(line)}")
    return offsets


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return encode_checkpoint(f"{leader_epoch} {start_offset}" for leader_epoch, start_offset in entries)


def decode_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Read a leader-epoch-checkpoint. Raises CheckpointError."""
    entries = []
    for line in decode_checkpoint(data, path):
        try:
            leader_epoch, start_offset = map(int, line.split())
        except ValueError as error:
            raise CheckpointError(f"malformed line in checkpoint {path}: {quoted(line)}") from error
        if leader_epoch < 0 or start_offset < 0:
            raise CheckpointError(f"negative number in checkpoint {path}: {quoted(line)}")
        entries.append(EpochEntry(leader_epoch, start_offset))
    return entries


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Return a partition.metadata: two lines without a newline at the end, as Kafka writes them."""
    return f"version: 0\ntopic_id: {uuid_to_string(topic_id)}".encode("ascii")


def decode_partition_metadata(data: bytes, path: str) -> Uuid:
    """Return the topic id that a partition.metadata holds. Raises CheckpointError."""
    try:
        words = [line.split() for line in data.decode("ascii").splitlines()]
        (_, version), (_, text) = words[0], words[1]
        topic_id = uuid_from_string(text)
        if int(version) < 0 or topic_id == ZERO_UUID:
            raise ValueError(f"version {version}, topic id {text}")
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"malformed {path}: {error}") from error
    return topic_id


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of meta.properties. `others` keeps the unknown properties."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's bytes (version 1), without the comment with the date that Kafka writes."""
        lines = [f"node.id={self.node_id}"]
        if self.directory_id is not None:
            lines.append(f"directory.id={uuid_to_string(self.directory_id)}")
        lines += ["version=1", f"cluster.id={self.cluster_id}"]
        lines += [f"{key}={value}" for key, value in self.others.items()]
        return ("\n".join(lines) + "\n").encode("utf-8")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read a meta.properties of version 1. Raises CheckpointError."""
    try:
        values = dict(_property_lines(data.decode("utf-8")))
        version = values.pop("version")
        if version != "1":
            raise ValueError(f"its version is {version}, not 1")
        node_id = values.pop("node.id")
        if not node_id.isdecimal():
            raise ValueError(f"its node.id is {node_id}, not a number")
        directory_id = values.pop("directory.id", None)
        return MetaProperties(
            cluster_id=values.pop("cluster.id"),
            node_id=int(node_id),
            directory_id=uuid_from_string(directory_id) if directory_id is not None else None,
            others=values,
        )
    except KeyError as error:
        raise CheckpointError(f"malformed {path}: it lacks {error.args[0]}") from error
    except ValueError as error:
        raise CheckpointError(f"malformed {path}: {error}") from error


def _property_lines(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            yield key.strip(), value.strip().replace("\\:", ":").replace("\\=", "=")


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode("ascii")


def decode_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in a .kafka_cleanshutdown, or None: the stop was clean even if the epoch is missing."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) else None
