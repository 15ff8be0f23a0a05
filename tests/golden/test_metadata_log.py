"""The metadata logs and snapshots that Apache Kafka 4.3.1 and 4.4.0 left: they replay to images that hold what it held.

Every image is also written as a snapshot by us and read back, and replayed into the controller's tables.
"""

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.metadata import controller, delta
from kafkapy.metadata.delta import MetadataDelta, delta_to
from kafkapy.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC, MetadataImage, Provenance
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.record_serde import decode_record, encode_record
from kafkapy.metadata.snapshot import encoded_slices, image_records
from kafkapy.protocol.api_table import METADATA_RECORDS
from kafkapy.record.batches import batches
from kafkapy.server.formatted import bootstrap_records
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import uuid_from_string, uuid_to_string
from tests.support.controllers import new_controller, published_by

GOLDEN = Path(__file__).parent
OF_4_4_0 = "clean_4.4.0"
DIRECTORIES = ["clean", "unclean", "standalone", OF_4_4_0]
"""The first three are of Apache Kafka 4.3.1."""
CLUSTER_LOG = "data/__cluster_metadata-0/"


@cache
def files_of(directory: str) -> dict[str, bytes]:
    """Return the files of a golden data directory by their path in the archive."""
    with tarfile.open(GOLDEN / f"kafka_data_dir_{directory}.tar.gz") as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def log_batches(data: bytes) -> list[Any]:
    """Return the batches of a segment; the file of a running broker is filled up with zeros."""
    return list(batches(memoryview(data.rstrip(b"\0") + bytes(8))[:-8])) if data else []


def replay_log(loader: ImageLoader, data: bytes, *, from_offset: int = 0) -> None:
    for batch in log_batches(data):
        if batch.base_offset < from_offset:
            continue
        records = [] if batch.is_control else [decode_record(record.value) for record in batch.records()]
        loader.replay(records)
        loader.end_batch(Provenance(batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp))


def snapshot_records(data: bytes) -> list[Any]:
    """Return the data records of a .checkpoint file."""
    data_batches = [batch for batch in log_batches(data) if not batch.is_control]
    return [decode_record(record.value) for batch in data_batches for record in batch.records()]


def image_of(directory: str) -> MetadataImage:
    """Return the image of a directory: its newest snapshot, then its log."""
    files = files_of(directory)
    loader = ImageLoader()
    snapshots = sorted(name for name in files if name.startswith(CLUSTER_LOG) and name.endswith(".checkpoint"))
    start = 0
    if snapshots:
        start = int(snapshots[-1].removeprefix(CLUSTER_LOG).split("-")[0])
        for _ in loader.load_snapshot(snapshot_records(files[snapshots[-1]]), Provenance(start - 1, 1, 0)):
            pass
    for name in sorted(name for name in files if name.startswith(CLUSTER_LOG) and name.endswith(".log")):
        replay_log(loader, files[name], from_offset=start)
    published = published_by(loader)
    assert published is not None
    return published[1]


def partition_folders(directory: str) -> dict[str, tuple[int, str]]:
    """Return the topics that have folders: name -> (partitions, topic id in partition.metadata)."""
    topics: dict[str, tuple[int, str]] = {}
    for path, data in files_of(directory).items():
        folder, _, file = path.removeprefix("data/").partition("/")
        if file == "partition.metadata" and not folder.startswith("__cluster_metadata"):
            topic = folder.rpartition("-")[0]
            topic_id = data.decode().split("topic_id: ")[1].strip()
            topics[topic] = (topics.get(topic, (0, ""))[0] + 1, topic_id)
    return topics


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_image_has_the_topics_that_lie_on_disk(directory: str) -> None:
    image = image_of(directory)

    held = {t.name: (len(t.partitions), uuid_to_string(t.topic_id)) for t in image.topics.by_name.values()}

    assert held == partition_folders(directory)


def test_standalone_directory_holds_what_kafka_described() -> None:
    expected = json.loads((GOLDEN / "kafka_data_dir_standalone_expected.json").read_text())
    image = image_of("standalone")

    described = {
        topic.name: {
            "topic_id": uuid_to_string(topic.topic_id),
            "partitions": len(topic.partitions),
            "configs": dict(image.configs.of(RESOURCE_TOPIC, topic.name)),
        }
        for topic in image.topics.by_name.values()
    }

    assert described == expected["topics"]
    assert not any(name in image.topics.by_name for name in expected["deleted_topics"])
    assert all(image.topics.by_id[uuid_from_string(t["topic_id"])].name == n for n, t in expected["topics"].items())


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_features_are_those_of_a_new_directory_of_its_release(directory: str) -> None:
    levels = image_of(directory).features.levels

    metadata_version, share_version = (33, 2) if directory == OF_4_4_0 else (30, 1)
    assert levels["metadata.version"] == metadata_version
    assert levels["share.version"] == share_version
    assert levels["transaction.version"] == 2
    assert levels["group.version"] == 1


def test_controlled_shutdown_leaves_partitions_without_leader_but_with_an_eligible_one() -> None:
    (stopped,) = image_of("clean").cluster.brokers.values()
    (running,) = image_of("unclean").cluster.brokers.values()
    left = image_of("clean").topics.by_name["plain"].partitions[0]
    led = image_of("unclean").topics.by_name["plain"].partitions[0]

    assert (stopped.in_controlled_shutdown, running.in_controlled_shutdown) == (True, False)
    assert (left.leader, left.isr, left.elr, left.leader_epoch) == (-1, (), (1,), 1)
    assert (led.leader, led.isr, led.elr, led.leader_epoch) == (1, (1,), (), 0)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_image_survives_our_own_snapshot(directory: str) -> None:
    image = image_of(directory)

    values = [value for part in encoded_slices(image, records_per_slice=7) for value in part]
    restored = delta_to(EMPTY_IMAGE, [decode_record(value) for value in values]).apply(image.provenance)

    assert restored == image


def test_every_snapshot_of_the_standalone_directory_equals_the_log_up_to_it() -> None:
    files = files_of("standalone")
    names = sorted(name.removesuffix(".deleted") for name in files if ".checkpoint" in name and "0000-0" not in name)
    names = [name for name in names if name.startswith(CLUSTER_LOG)]
    logs = sorted(name for name in files if name.startswith(CLUSTER_LOG) and ".log" in name)

    assert len(names) > 20
    for name in names:
        content = files.get(name) or files[name + ".deleted"]
        end_offset = int(name.removeprefix(CLUSTER_LOG).split("-")[0])
        by_snapshot = delta_to(EMPTY_IMAGE, snapshot_records(content)).apply(EMPTY_IMAGE.provenance)
        by_log = image_up_to(logs, files, end_offset)
        assert by_snapshot.has_same_content(by_log), name


def image_up_to(logs: list[str], files: dict[str, bytes], end_offset: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for name in logs:
        for batch in log_batches(files[name]):
            if batch.is_control:
                continue
            for record in batch.records():
                if record.offset < end_offset:
                    delta.replay(decode_record(record.value))
    return delta.apply(EMPTY_IMAGE.provenance)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_records_are_written_again_to_the_byte(directory: str) -> None:
    for name, data in files_of(directory).items():
        if not name.startswith(CLUSTER_LOG) or ".log" not in name:
            continue
        for batch in log_batches(data):
            for record in [] if batch.is_control else batch.records():
                value = bytes(record.value or b"")
                assert encode_record(decode_record(value), value[2]) == value


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_controller_replays_the_records_and_has_what_the_image_has(directory: str) -> None:
    image = image_of(directory)
    controller = new_controller(image)

    assert sorted(controller.topics.by_name) == sorted(image.topics.by_name)
    replayed = new_controller(EMPTY_IMAGE)
    for offset, record in enumerate(image_records(image)):
        replayed.replay(record, offset)
    assert replayed.topics.by_name == controller.topics.by_name
    assert replayed.brokers.brokers == controller.brokers.brokers
    assert replayed.features.levels == controller.features.levels


@pytest.mark.parametrize("directory", ["clean", "unclean", "standalone"])
def test_bootstrap_checkpoint_holds_the_levels_of_a_new_directory(directory: str) -> None:
    from kafkapy.metadata.bootstrap import default_bootstrap_records

    records = snapshot_records(files_of(directory)["data/bootstrap.checkpoint"])
    levels = {record.name: record.feature_level for record in records if hasattr(record, "feature_level")}

    ours = {record.name: record.feature_level for record in default_bootstrap_records()}
    ours |= {"metadata.version": 30, "share.version": 1}
    assert levels == {name: ours[name] for name in levels}


def metadata_messages() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "messages.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    names = set(METADATA_RECORDS.values())
    return [row for row in rows if row["message"] in names]


def test_every_metadata_record_is_replayed_by_nodes_and_by_controllers() -> None:
    """One that a node cannot read stops it, at each start."""
    names = set(METADATA_RECORDS.values())
    assert {row["message"] for row in metadata_messages()} == names
    assert delta._REPLAY.keys() == controller._REPLAY.keys() == names


def test_every_golden_metadata_record_replays_or_is_refused_by_its_family() -> None:
    replayed = 0
    reasons = []
    keys = {name: key for key, name in METADATA_RECORDS.items()}
    for row in metadata_messages():
        value = bytes((1, keys[row["message"]], row["version"])) + bytes.fromhex(row["hex"])
        record = decode_record(value)
        assert encode_record(record, row["version"]) == value
        try:
            MetadataDelta(EMPTY_IMAGE).replay(record)
            replayed += 1
        except AssertionError as error:
            reasons.append(str(error))
    assert replayed > 0
    assert reasons
    assert all(reasons)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "inside its frame"),
        ("01", "inside its frame"),
        ("020c00", "frame version 2"),
        ("016300", "unknown metadata record type 99"),
        ("010c05", "version 5"),
        ("010c00ff", "."),
    ],
)
def test_damaged_records_raise_protocol_errors(value: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_record(bytes.fromhex(value))


def test_a_directory_of_4_4_0_has_its_first_records_in_snapshot_0_0(tmp_path: Path) -> None:
    """They are for the first leader to write, and no part of the image: its log has them, too."""
    with tarfile.open(GOLDEN / f"kafka_data_dir_{OF_4_4_0}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    records = bootstrap_records(SystemDisk(), str(tmp_path / "data"))
    levels = {record.name: record.feature_level for record in records if hasattr(record, "feature_level")}
    assert levels["metadata.version"] == 33
    assert levels["share.version"] == 2
