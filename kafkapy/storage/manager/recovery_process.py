"""Putting a log right in a process of its own, after a stop that was not clean: what a broker's helper processes run.

The files are left as after a clean stop (what does not hold cut, indexes rebuilt and trimmed, snapshots taken), but
not made durable: the broker opens the log with `is_recovered` and keeps its recovery point. A crash in between is met
by doing it all again.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.manager.loading import LogToLoad
from kafkapy.storage.producers.state import ProducerState
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import TopicPartition

FUNCTION = "kafkapy.storage.manager.recovery_process:recover"


def arguments(item: LogToLoad, *, now_ms: int, producer_id_expiration_ms: int) -> dict[str, Any]:
    """Return the call of `recover` for a log, as JSON can carry it."""
    return {
        "directory": item.path,
        "topic": item.topic_partition.topic,
        "partition": item.topic_partition.partition,
        "config": asdict(item.config),
        "log_start_offset": item.log_start_offset,
        "recovery_point": item.recovery_point,
        "now_ms": now_ms,
        "producer_id_expiration_ms": producer_id_expiration_ms,
    }


def recover(
    *,
    directory: str,
    topic: str,
    partition: int,
    config: Mapping[str, Any],
    log_start_offset: int,
    recovery_point: int,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> str | None:
    """Recover a log; return why that failed, None where it did not: whoever asks may then try it himself."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    try:
        log = open_log(
            SystemDisk(),
            directory,
            TopicPartition(topic, partition),
            LogConfig(**values),
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            was_clean_shutdown=False,
            new_producer_state=lambda: ProducerState(producer_id_expiration_ms=producer_id_expiration_ms),
        )
        hand_over(log)
    except (ApiError, StorageError) as error:
        return str(error.message)
    return None


def hand_over(log: Log) -> None:
    """Leave the files as after a clean stop, though not durable, for who opens the log with `is_recovered`."""
    with log.failures("handing over"):
        log.local_log.snapshots.maybe_take(log.producer_state)
        log.segments.active.become_inactive()
        log.local_log.write_epochs(log.leader_epochs)
    log.local_log.close_files()
