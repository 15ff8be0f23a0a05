"""Producers expire in every log that is served or copied (producer.id.expiration.check.interval.ms)."""

from kafkapy.config.log import LogConfig
from kafkapy.runtime.logs.maintenance import producer_expiry_steps
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.chance import SeededRandom
from tests.support.hosting import batch
from tests.support.logs import NOW_MS, load_logs

PARTITION, TOPIC_ID = TopicPartition("a", 0), bytes(15) + b"1"
DAY_MS = 86_400_000


def test_those_of_a_copy_that_moves_to_another_directory_expire_too() -> None:
    manager = LogManager(SimDisk(), ["/first", "/second"], LogConfig(), random=SeededRandom(1))
    manager.directories.lock()
    for number, directory in enumerate(manager.directories):
        directory.write_meta(MetaProperties("cluster", 1, bytes(14) + bytes((number, 128))))
    load_logs(manager)
    current = manager.get_or_create_log(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    (target,) = [directory for directory in manager.directories if directory.path != current.log_dir.path]
    copy = manager.create_future_log(PARTITION, target, TOPIC_ID, NOW_MS)
    for log in (current, copy):
        records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    for now_ms, producers in ((NOW_MS, [5]), (NOW_MS + 2 * DAY_MS, [])):
        assert len(list(producer_expiry_steps(manager, now_ms))) == 2
        assert [list(log.producer_state.producers) for log in (current, copy)] == [producers] * 2
