"""A file of a directory is damaged: a broker puts it right, or refuses to start and names it.

It loses and invents nothing.
Directories that Apache Kafka 4.3.1 wrote, and one of kafkapy; a file each is flipped, zeroed, cut, grown or taken away.
"""

import tarfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import pytest

from kafkapy.errors import KafkapyError
from kafkapy.record.batches import batches
from kafkapy.record.errors import CorruptRecordError
from kafkapy.storage.log.log import Log
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.broker_world import DATA_DIR, Machine
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parent.parent / "golden"
NODE_IDS = {"clean": 1, "standalone": 3, "kafkapy": 1}
COUNTS = {"clean": 240 * SOAK_FACTOR, "standalone": 60 * SOAK_FACTOR, "kafkapy": 270 * SOAK_FACTOR}
NOT_CHECKED = ("meta.properties", "quorum-state", "log-start-offset-checkpoint", "bootstrap.checkpoint")
"""Text without a checksum, as Apache Kafka writes it: a digit that flips is another number, and nobody can tell."""

NO_VOTERS = "REQUEST_TIMED_OUT: The broker did not register with a controller within "
"""Where quorum-state is missing or damaged, and nothing else names the voters."""

Damage = Callable[[bytearray, Random], None]


def flip_a_bit(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def zero_a_page(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data)) & ~511
    data[start : start + 4096] = bytes(len(data[start : start + 4096]))


def cut_the_tail(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def add_garbage(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.randrange(1, 600))


def double(data: bytearray, random: Random) -> None:
    data *= 2


DAMAGES: tuple[Damage, ...] = (flip_a_bit, flip_a_bit, zero_a_page, cut_the_tail, add_garbage, double)


@cache
def intact(name: str) -> SimDisk:
    return directory_of_kafkapy() if name == "kafkapy" else directory_of_kafka(name)


def directory_of_kafka(name: str) -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DATA_DIR)
    with tarfile.open(GOLDEN / f"kafka_data_dir_{name}.tar.gz") as archive:
        for member in archive:
            path = f"{DATA_DIR}/{member.name.partition('/')[2]}"
            content = archive.extractfile(member)
            if content is None:
                disk.make_directory(path.rstrip("/"))
            else:
                file = disk.open(path, create=True)
                file.pwrite((content.read(),), 0)
                file.close()
    disk.sync_all()
    return disk


def directory_of_kafkapy() -> SimDisk:
    disk = SimDisk()

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk, log_cleaner_enable="false")
        await machine.boot()
        client = machine.connect()
        producer_id, producer_epoch = await client.init_producer_id()
        for name in ("one", "two"):
            topic = await client.create_topic(name, 2, segment_ms="100", index_interval_bytes="100")
            for number in range(30):
                fields = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": number}
                response = await client.produce(topic, b"%d" % number * 20, partition=0, **fields)
                assert response.error_code == 0
                await client.produce(topic, b"plain")
        await machine.stop()

    run(main)
    disk.locked.clear()
    return disk


def files_of(disk: SimDisk, path: str = DATA_DIR) -> dict[str, bytes]:
    found = {}
    for name in disk.list_directory(path):
        below = f"{path}/{name}"
        found.update(files_of(disk, below) if disk.is_directory(below) else {below: disk.read_file(below)})
    return found


def batches_of(data: bytes) -> dict[int, bytes]:
    return {batch.base_offset: bytes(batch.raw()) for batch in batches(data)}


@cache
def batches_by_partition(name: str) -> dict[str, dict[int, bytes]]:
    found: dict[str, dict[int, bytes]] = {}
    for path, data in files_of(intact(name)).items():
        if path.endswith(".log"):
            found.setdefault(path.split("/")[2], {}).update(batches_of(data))
    return found


def boot(disk: SimDisk, node_id: int) -> tuple[dict[TopicPartition, Log], str]:
    """Start a broker; return the logs that it serves, or none and why it refuses."""

    async def main(loop: SimLoop) -> tuple[dict[TopicPartition, Log], str]:
        machine = Machine(loop, disk=disk, log_cleaner_enable="false", node_id=str(node_id))
        try:
            await machine.boot()
        except KafkapyError as error:
            return {}, str(error)
        return machine.logs(), ""

    return run(main)


@cache
def damageable(name: str) -> list[str]:
    """Return the paths of files that hold something."""
    marks = (".lock", ".kafka_cleanshutdown")
    return [path for path, data in files_of(intact(name)).items() if data and not path.endswith(marks)]


def damaged(name: str, seed: int) -> tuple[SimDisk, str, str, bool]:
    """Return a damaged copy, the file, the damage, and whether the last stop looks clean."""
    random = Random(f"{name} {seed}")
    disk = intact(name).fork(seed)
    path = random.choice(damageable(name))
    is_clean = random.random() < 0.6
    if not is_clean:
        disk.delete(f"{DATA_DIR}/.kafka_cleanshutdown")
    if random.random() < 0.1:
        disk.delete(path)
        return disk, path, "missing", is_clean
    data = bytearray(disk.read_file(path))
    damage = random.choice(DAMAGES)
    damage(data, random)
    disk.write_file_atomically(path, bytes(data))
    return disk, path, damage.__name__, is_clean


def check(name: str, disk: SimDisk, path: str, logs: dict[TopicPartition, Log], refusal: str) -> str:
    """Hold what is served, and what is on disk then, to what was there before; return what happened."""
    wanted = batches_by_partition(name)
    file_name = path.rpartition("/")[2]
    is_log = file_name.endswith(".log")
    for partition, log in logs.items():
        before = wanted[str(partition)]
        for segment in log.segments:
            with suppress(CorruptRecordError):  # below the recovery point nothing is read at a start
                for batch in batches(segment.log.file.pread(segment.size, 0)):
                    assert not batch.has_valid_crc() or before[batch.base_offset] == bytes(batch.raw())
    if refusal:
        assert file_name in refusal or path.split("/")[2] in refusal or refusal.startswith(NO_VOTERS), refusal
    if is_log or file_name in NOT_CHECKED:
        return "refused" if refusal else "served"
    for each, data in log_files(name):
        assert stored(disk, each).startswith(data), f"{each} has changed"
    return "refused" if refusal else "served"


@cache
def log_files(name: str) -> list[tuple[str, bytes]]:
    """Return path and content of what holds records, but for the metadata log, which may be trimmed."""
    found = files_of(intact(name)).items()
    return [(path, data) for path, data in found if path.endswith(".log") and str(METADATA_PARTITION) not in path]


def stored(disk: SimDisk, path: str) -> bytes:
    """Return a file's content. A directory whose partition.metadata names another topic was moved aside."""
    _, _, partition, name = path.split("/")
    strays = [each for each in disk.list_directory(DATA_DIR) if each.startswith(partition) and each.endswith("-stray")]
    return disk.read_file(f"{DATA_DIR}/{strays[0]}/{name}" if strays else path)


@pytest.mark.parametrize("name", NODE_IDS)
def test_damage_is_put_right_or_refused(name: str) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(COUNTS[name]):
        disk, path, damage, is_clean = damaged(name, seed)
        try:
            outcomes[check(name, disk, path, *boot(disk, NODE_IDS[name]))] += 1
        except Exception as error:
            error.add_note(f"{name} {seed}: {damage} of {path}, {'clean' if is_clean else 'unclean'}")
            raise
    print(f"\n{name}: {dict(outcomes)}")
    assert outcomes["served"] > outcomes["refused"] > 0


def test_intact_directories_are_served() -> None:
    for name, node_id in NODE_IDS.items():
        logs, refusal = boot(intact(name).fork(0), node_id)
        assert not refusal
        assert logs
