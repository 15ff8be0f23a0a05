"""What `storage format` left in the log directories: whose they are, and what an empty metadata log begins with."""

from typing import TYPE_CHECKING, Any

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ApiError, ConfigError, ProtocolError, StorageError
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.record_serde import decode_record
from kafkapy.record.batch import batches
from kafkapy.storage.manager.log_directories import LogDirectories
from kafkapy.storage.offline.format import BOOTSTRAP_CHECKPOINT
from kafkapy.types import METADATA_PARTITION

if TYPE_CHECKING:
    from kafkapy.seams import Disk


def check_identity(disk: "Disk", directories: LogDirectories, config: BrokerConfig) -> str:
    """Return the cluster id that all directories agree on, those offline aside. Raises ConfigError."""
    metas = {directory.path: directory.meta for directory in directories.live}
    if directories.metadata_only is not None:
        metas[directories.metadata_only.path] = directories.metadata_only.meta
    for path, meta in metas.items():
        if path != config.metadata_log_dir and disk.exists(f"{path}/{METADATA_PARTITION}"):
            message = f"holds {METADATA_PARTITION}, but the metadata directory is {config.metadata_log_dir}"
            raise ConfigError("metadata.log.dir", path, message)
        if meta is None:
            message = "is not formatted: run `kafkapy storage format` first"
            raise ConfigError("log.dirs", path, message)
        if meta.node_id != config.node_id:
            raise ConfigError("node.id", config.node_id, f"{path}/meta.properties says node.id={meta.node_id}")
    cluster_ids = {meta.cluster_id for meta in metas.values() if meta is not None}
    if len(cluster_ids) > 1:
        raise ConfigError("log.dirs", ",".join(metas), f"they belong to several clusters: {sorted(cluster_ids)}")
    return cluster_ids.pop()


def bootstrap_records(disk: "Disk", metadata_log_dir: str) -> list[Any]:
    """Return what formatting left for an empty metadata log, or what it leaves by default. Raises StorageError."""
    path = f"{metadata_log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if not disk.exists(path):
        return list(default_bootstrap_records())
    try:
        data_batches = (batch for batch in batches(disk.read_file(path)) if not batch.is_control)
        records = [decode_record(record.value or b"") for batch in data_batches for record in batch.records()]
    except (ApiError, ProtocolError) as error:
        raise StorageError(metadata_log_dir, f"{path} is damaged: {error}") from error
    if not records:
        raise StorageError(metadata_log_dir, f"{path} is damaged: it holds no records")
    return records
