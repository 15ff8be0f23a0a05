"""Open a log: create or recover its directory, read or write its topic id (KIP-516)."""

import errno
from contextlib import suppress
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.record.errors import RecordsError
from kafkapy.seams import Disk
from kafkapy.storage.checkpoint import PARTITION_METADATA_FILE
from kafkapy.storage.errors import INCONSISTENT_TOPIC_ID, DamagedLogError
from kafkapy.storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.recovery.loader import NEW_LOG, LastStop, LogLoader
from kafkapy.types import TopicPartition, Uuid

NOT_THE_DISK: Final = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESPIPE,
)
"""Errors of a name that is no file or directory as it should be, on a disk that works."""


def open_log(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    last_stop: LastStop = NEW_LOG,
    shared: SharedByLogs | None = None,
) -> Log:
    """Open the log in `directory`, creating it if missing; recover it unless the last stop was clean. Blocks.

    shared: None for a log of its own. Raises StorageError. It is a DamagedLogError if only this log is at fault and the
    last stop was unclean; after a clean stop the controller counts on the log, so its directory goes offline.
    """
    if shared is None:
        shared = SharedByLogs.by_one(disk, directory)
    try:
        loader = LogLoader(
            shared.files,
            directory,
            topic_partition,
            config,
            last_stop,
            now_ms=now_ms,
            new_producer_state=shared.new_producer_state,
        )
        loaded = loader.load()
        log = Log(loaded, directory, topic_partition, config, shared, now_ms=now_ms)
        if not loaded.is_new:
            log.set_topic_id(log.local_log.read_topic_id())
    except OSError as error:
        shared.files.close_in(directory)
        if error.errno in NOT_THE_DISK and not last_stop.was_clean:
            raise DamagedLogError(shared.log_dir.path, f"loading {topic_partition}: {error}") from error
        raise shared.log_dir.handle_os_error(error, f"loading {topic_partition}") from error
    except RecordsError as error:  # after a clean stop nothing is truncated: an operator decides
        shared.files.close_in(directory)
        failure = StorageError if last_stop.was_clean else DamagedLogError
        raise failure(shared.log_dir.path, f"{directory} is damaged: {error.message}") from error
    return log


def assign_topic_id(log: Log, topic_id: Uuid) -> None:
    """Write partition.metadata unless it exists. Raises ApiError INCONSISTENT_TOPIC_ID if it holds another id.

    The next flush syncs the file.
    """
    if log.topic_id == topic_id:
        return
    if log.topic_id is not None:
        raise ApiError(INCONSISTENT_TOPIC_ID, f"{log.directory} holds another topic of the name")
    try:
        log.local_log.write_topic_id(topic_id)
    except OSError as error:
        doing = f"writing partition.metadata in {log.topic_partition}"
        raise log.log_dir.handle_os_error(error, doing) from error
    log.set_topic_id(topic_id)


def remove_unfinished(disk: Disk, directory: str) -> None:
    """Remove the directory of a new log that could not be completed for lack of room.

    The next start would load what was left, even if the log was created in another directory meanwhile: as a duplicate,
    or as the copy of a move that was refused. A directory with records, or with other files than a new log has, stays.
    """
    files = {segment_file(directory, 0, suffix) for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
    files.add(f"{directory}/{PARTITION_METADATA_FILE}")
    with suppress(OSError):
        if all(f"{directory}/{name}" in files for name in disk.list_directory(directory)) and not _has_records(
            disk, segment_file(directory, 0, LOG_SUFFIX)
        ):
            disk.delete_tree(directory)


def _has_records(disk: Disk, path: str) -> bool:
    if not disk.exists(path):
        return False
    file = disk.open(path, writable=False)
    try:
        return file.size() > 0
    finally:
        file.close()
