"""Open a log: create or recover its directory, read its topic id."""

from collections.abc import Callable
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.errors import StorageError
from kafkapy.record.errors import RecordsError
from kafkapy.seams import Disk
from kafkapy.storage.log.log import Log
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.recovery.loader import LastStop, LogLoader
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.types import TopicPartition, Uuid

NEW_LOG: Final = LastStop()
"""The last stop of a log that is not there yet. One that is there was closed cleanly, and its checkpoints are 0."""


def open_log(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    last_stop: LastStop = NEW_LOG,
    topic_id: Uuid | None = None,
    files: OpenFiles | None = None,
    log_dir: LogDirState | None = None,
    new_producer_state: Callable[[], ProducerState] = ProducerState,
    jitter: Callable[[int], int] | None = None,
) -> Log:
    """Open the log in `directory`, creating it if missing; recover it unless the last stop was clean. Blocks.

    files: the open-file cache shared by all logs, a new one if None; log_dir: likewise. jitter(n): returns a random int
    in [0, n) for segment.jitter.ms. Raises StorageError; ApiError INCONSISTENT_TOPIC_ID if the directory holds another
    topic.
    """
    files = files if files is not None else OpenFiles(disk)
    log_dir = log_dir if log_dir is not None else LogDirState(directory.rpartition("/")[0] or ".")
    try:
        disk.make_directory(directory)
        loader = LogLoader(
            files,
            directory,
            topic_partition,
            config,
            last_stop,
            now_ms=now_ms,
            new_producer_state=new_producer_state,
        )
        loaded = loader.load()
        log = Log(loaded, files, directory, topic_partition, config, log_dir, now_ms=now_ms, jitter=jitter)
        log.read_topic_id()
        if topic_id is not None:
            log.assign_topic_id(topic_id)
    except OSError as error:
        raise log_dir.failure(error, f"loading {topic_partition}") from error
    except RecordsError as error:  # after a clean stop nothing is truncated: an operator decides
        raise StorageError(log_dir.path, f"{directory} is damaged: {error.message}") from error
    return log
