"""The image that a metadata log on a disk stands for: read by nobody's running code, from the files alone."""

from collections.abc import Iterator

from kafkapy.metadata.image import MetadataImage, Provenance
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.record_serde import decode_record
from kafkapy.record.batch import RecordBatch
from kafkapy.record.batches import batch_at
from kafkapy.storage.file_names import LOG_SUFFIX, RAFT_SNAPSHOT_SUFFIX
from kafkapy.storage.metadata.snapshot import SnapshotReader, parse_name
from tests.simulator.disk import SimDisk


def replayed_image(disk: SimDisk, directory: str, last_offset: int) -> MetadataImage:
    """Return the image at an offset: the newest snapshot that is not beyond it, and the log from there."""
    loader = ImageLoader()
    next_offset = 0
    names = [parse_name(name) for name in disk.list_directory(directory)]
    snapshot_ids = [name[0] for name in names if name is not None and name[1] == RAFT_SNAPSHOT_SUFFIX]
    usable = [each for each in snapshot_ids if 0 < each.offset <= last_offset + 1]
    if usable:
        reader = SnapshotReader(disk, directory, max(usable))
        records = [decode_record(value) for batch in reader.batches() for value in batch]
        snapshot_id = reader.snapshot_id
        timestamp_ms = reader.last_contained_log_timestamp_ms
        _run(loader.load_snapshot(records, Provenance(snapshot_id.offset - 1, snapshot_id.leader_epoch, timestamp_ms)))
        _run(loader.publish())
        next_offset = snapshot_id.offset
    for batch in _log_batches(disk, directory):
        if next_offset <= batch.last_offset <= last_offset:
            records = [] if batch.is_control else [decode_record(each.value or b"") for each in batch.records()]
            loader.replay(records)
            loader.end_batch(Provenance(batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp))
            next_offset = batch.last_offset + 1
    _run(loader.publish())
    assert next_offset == last_offset + 1, f"{directory} ends at {next_offset}, the image at {last_offset}"
    return loader.image


def _run(steps: Iterator[None]) -> None:
    """Take all steps of what may be done a step at a time."""
    for _ in steps:
        pass


def _log_batches(disk: SimDisk, directory: str) -> Iterator[RecordBatch]:
    """Yield the batches of all segments; zeros behind the last one are preallocated."""
    for name in disk.list_directory(directory):
        if name.endswith(LOG_SUFFIX):
            data = disk.read_file(f"{directory}/{name}")
            position = 0
            while position < len(data.rstrip(b"\0")):
                batch = batch_at(data, position)
                yield batch
                position += batch.size_bytes
