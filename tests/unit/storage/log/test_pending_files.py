from kafkapy.config.log import LogConfig
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.maintenance import delete_old_segments
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.segment.open_files import OpenFiles
from tests.simulator.disk import SimDisk
from tests.support.logs import DIRECTORY, NOW_MS, PARTITION, SMALL, append


def test_a_closed_log_leaves_no_file_open_that_is_pending_deletion() -> None:
    """An embedded broker stops, and its process goes on."""
    disk = SimDisk()
    disk.make_directory("/logs")
    files = OpenFiles(disk)
    config = LogConfig(**{**SMALL, "segment_bytes": 500, "retention_ms": 1000, "file_delete_delay_ms": 60_000})
    shared = SharedByLogs(files, LogDirState("/logs"))
    log = open_log(disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS, last_stop=LastStop(), shared=shared)
    for _ in range(9):
        append(log, value_bytes=100)
    delete_old_segments(log, NOW_MS + 1001)
    assert len(log.local_log.pending_file_deletions) > 0
    log.close()
    assert len(files) == 0
