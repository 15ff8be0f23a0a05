"""Checks what `storage format` wrote: cluster and node ids, and the first records of an empty metadata log."""

from typing import TYPE_CHECKING, Any

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ApiError, ConfigError, ProtocolError, StorageError
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.record_serde import decode_record
from kafkapy.record.batches import batches
from kafkapy.storage.file_names import (
    BOOTSTRAP_CHECKPOINT,
    RAFT_SNAPSHOT_SUFFIX,
    holds_metadata_log,
    partition_directories,
)
from kafkapy.storage.manager.log_directories import LogDirectories
from kafkapy.storage.offline.format import VOTERS_CHECKPOINT, check_not_lost
from kafkapy.types import METADATA_PARTITION

if TYPE_CHECKING:
    from kafkapy.seams import Disk


def check_identity(disk: "Disk", directories: LogDirectories, config: BrokerConfig) -> str:
    """Return the cluster id that all online directories agree on. Raises ConfigError."""
    metas = {directory.path: directory.meta for directory in directories.live}
    if directories.metadata_only is not None:
        metas[directories.metadata_only.path] = directories.metadata_only.meta
    for path, meta in metas.items():
        if path != config.metadata_log_dir and disk.exists(f"{path}/{METADATA_PARTITION}"):
            message = f"holds {METADATA_PARTITION}, but the metadata directory is {config.metadata_log_dir}"
            raise ConfigError("metadata.log.dir", path, message)
        if meta is None:
            if path == config.metadata_log_dir:
                check_not_lost(disk, config, metas)
            message = "is not formatted: run `kafkapy storage format` first"
            raise ConfigError("log.dirs", path, message)
        if meta.node_id != config.node_id:
            raise ConfigError("node.id", config.node_id, f"{path}/meta.properties says node.id={meta.node_id}")
    cluster_ids = {meta.cluster_id for meta in metas.values() if meta is not None}
    if len(cluster_ids) > 1:
        raise ConfigError("log.dirs", ",".join(metas), f"they belong to several clusters: {sorted(cluster_ids)}")
    return cluster_ids.pop()


def check_metadata_log(disk: "Disk", directories: LogDirectories, config: BrokerConfig) -> None:
    """Raise StorageError if the metadata log is missing but topic logs exist, and no other node has the metadata.

    Deviation: Apache Kafka starts without a metadata log, takes every topic log for a stray one and renames it. Here
    the start fails, because the records would be lost to readers.
    """
    metadata_dir = config.metadata_log_dir
    if not config.is_only_controller or holds_metadata_log(disk, metadata_dir):
        return
    if any(name.endswith(RAFT_SNAPSHOT_SUFFIX) and name != VOTERS_CHECKPOINT for name in _names(disk, metadata_dir)):
        return
    paths = [directory.path for directory in directories.live]
    count = sum(len(partition_directories(disk, path)) for path in paths)
    if count:
        message = (
            f"{METADATA_PARTITION} is missing or empty, but {count} logs are in {', '.join(paths)}. They would all "
            f"be taken for strays. Nothing was touched. Restore {metadata_dir}/{METADATA_PARTITION} from a backup; "
            "or, to start without these logs, move their directories away"
        )
        raise StorageError(metadata_dir, message)


def _names(disk: "Disk", metadata_log_dir: str) -> list[str]:
    path = f"{metadata_log_dir}/{METADATA_PARTITION}"
    return disk.list_directory(path) if disk.exists(path) else []


def bootstrap_records(disk: "Disk", metadata_log_dir: str) -> list[Any]:
    """Return the records that formatting left for an empty metadata log, or the default ones. Raises StorageError.

    Apache Kafka 4.4.0 leaves them in the log's snapshot 0-0, beside the voters, and no bootstrap.checkpoint.
    """
    path = f"{metadata_log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if disk.exists(path):
        records = _data_records(disk, metadata_log_dir, path)
        if not records:
            raise StorageError(metadata_log_dir, f"{path} is damaged: it holds no records")
        return records
    path = f"{metadata_log_dir}/{METADATA_PARTITION}/{VOTERS_CHECKPOINT}"
    records = _data_records(disk, metadata_log_dir, path) if disk.exists(path) else []
    return records or list(default_bootstrap_records())


def _data_records(disk: "Disk", metadata_log_dir: str, path: str) -> list[Any]:
    try:
        data_batches = (batch for batch in batches(disk.read_file(path)) if not batch.is_control)
        return [decode_record(record.value or b"") for batch in data_batches for record in batch.records()]
    except (ApiError, ProtocolError) as error:
        raise StorageError(metadata_log_dir, f"{path} is damaged: {error}") from error
