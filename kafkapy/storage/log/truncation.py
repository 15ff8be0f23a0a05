"""Truncate a log at an offset, or empty it, for a replica that has diverged from its leader.

The state derived from the records is rolled back with them: offsets, leader epochs, producers, the recovery point. A
flush or cleaning pass in progress detects the truncation by `truncation_count`.
"""

import logging
from typing import TYPE_CHECKING

from kafkapy.storage.producers.replay import rebuild_producers

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.storage")


def truncate_to(log: "Log", offset: int) -> bool:
    """Remove all records at and above `offset`; return whether there were any. Lowers the recovery point to `offset`.

    Blocks shortly. If the recovery point is checkpointed, lower the checkpoint first (LogManager.truncate_to):
    recovery does not check records below it.
    """
    log.log_dir.check_online()
    assert offset >= 0, f"truncation of {log.topic_partition} to {offset}"
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_to(log.log_end_offset)
        return False
    if offset < log.high_watermark:
        logger.warning("Truncating %s to %d, below its high watermark", log.topic_partition, offset)
    logger.info("Truncating %s to offset %d", log.topic_partition, offset)
    with log.failures("truncating"):
        if log.segments.first.base_offset > offset:
            _start_over(log, offset, offset)
        else:
            _cut(log, offset)
    return True


def truncate_fully_and_start_at(log: "Log", offset: int, log_start_offset: int | None = None) -> None:
    """Remove everything; the log is then empty, with the log end offset `offset`."""
    log.log_dir.check_online()
    assert offset >= 0, f"{log.topic_partition} starts over at {offset}"
    with log.failures("truncating"):
        _start_over(log, offset, log_start_offset if log_start_offset is not None else offset)


def _cut(log: "Log", offset: int) -> None:
    log.on_truncation_begun(offset)
    log.local_log.truncate_to(offset, log.now_ms)
    log.on_truncated(offset, min(log.log_start_offset, offset))
    log.leader_epochs.truncate_to(offset)
    _rebuild_producers(log)
    log.update_high_watermark(log.high_watermark)


def _start_over(log: "Log", offset: int, log_start_offset: int) -> None:
    log.on_truncation_begun(offset)
    log.local_log.start_over(offset, log.now_ms)
    log.on_truncated(offset, log_start_offset)
    log.leader_epochs.clear()
    log.producer_state.clear(offset)
    _rebuild_producers(log)
    log.update_high_watermark(offset)


def _rebuild_producers(log: "Log") -> None:
    rebuild_producers(
        log.producer_state,
        log.local_log.snapshots,
        log.segments,
        log_start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        now_ms=log.now_ms,
        was_clean_shutdown=False,
    )
    assert log.producer_state.map_end_offset == log.log_end_offset, f"{log}: {log.producer_state.map_end_offset}"
