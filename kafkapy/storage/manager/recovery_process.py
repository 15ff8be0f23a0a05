"""Recover a log in a helper process, after an unclean stop.

The helper leaves the files as a clean stop does (invalid data truncated, indexes rebuilt and trimmed, snapshots taken)
but not durable: the broker opens the log with `is_recovered` and keeps its recovery point. After a crash in between,
the log is recovered again.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.manager.loading import LogToLoad
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition

FUNCTION = "kafkapy.storage.manager.recovery_process:recover"


def arguments(item: LogToLoad, *, now_ms: int, producer_id_expiration_ms: int) -> dict[str, Any]:
    """Return the JSON-serializable arguments of `recover` for a log."""
    return {
        "directory": item.path,
        "topic_partition": [item.topic_partition.topic, item.topic_partition.partition],
        "config": asdict(item.config),
        "last_stop": asdict(
            LastStop(item.log_start_offset, item.recovery_point, was_clean=False, clean_to=item.clean_to)
        ),
        "now_ms": now_ms,
        "producer_id_expiration_ms": producer_id_expiration_ms,
    }


def recover(
    *,
    directory: str,
    topic_partition: tuple[str, int],
    config: Mapping[str, Any],
    last_stop: Mapping[str, Any],
    now_ms: int,
    producer_id_expiration_ms: int,
) -> str | None:
    """Recover a log; return the error message if that failed, else None. The broker may then try it itself."""
    # The arguments came as JSON, which has lists only.
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    shared = SharedByLogs.by_one(SystemDisk(), directory)._replace(
        new_producer_state=lambda: ProducerState(producer_id_expiration_ms=producer_id_expiration_ms)
    )
    try:
        log = open_log(
            SystemDisk(),
            directory,
            TopicPartition(*topic_partition),
            LogConfig(**values),
            now_ms=now_ms,
            last_stop=LastStop(**last_stop),
            shared=shared,
        )
        hand_over(log)
    except (ApiError, StorageError) as error:
        return str(error.message)
    return None


def hand_over(log: Log) -> None:
    """Leave the files as a clean stop does, but not durable, for a process that opens the log with `is_recovered`."""
    with log.failures("handing over"):
        log.local_log.snapshots.maybe_take(log.producer_state)
        log.segments.active.become_inactive()
        log.local_log.write_epochs(log.leader_epochs)
    log.local_log.close_files()
