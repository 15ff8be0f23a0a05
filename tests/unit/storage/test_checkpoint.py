import pytest

from kafkapy.storage import checkpoint
from kafkapy.storage.checkpoint import MetaProperties
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.file_names import marked_directory, parse_partition_directory, segment_file
from kafkapy.storage.leader_epochs import EpochEntry
from kafkapy.types import TopicPartition, uuid_from_string


def decoded_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    return checkpoint.offsets_of(checkpoint.decode_checkpoint(data, path), path)


def test_an_offset_checkpoint_is_version_count_and_lines() -> None:
    offsets = {TopicPartition("orders", 0): 42, TopicPartition("or-ders.x_y", 10): 7}
    data = checkpoint.encode_offsets(offsets)
    assert data == b"0\n2\norders 0 42\nor-ders.x_y 10 7\n"
    assert decoded_offsets(data, "") == offsets


def test_an_empty_checkpoint_has_no_entries() -> None:
    assert checkpoint.encode_offsets({}) == b"0\n0\n"
    assert decoded_offsets(b"0\n0\n", "") == decoded_offsets(b"", "") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"x\n0\n",
        b"0\n1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na b\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na 0 -1\n",
        b"\xff\n0\n",
    ],
)
def test_a_damaged_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decoded_offsets(data, "f")


def test_leader_epochs_are_pairs() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(5, 120)]
    assert checkpoint.encode_epochs(entries) == b"0\n2\n0 0\n5 120\n"
    assert checkpoint.decode_epochs(b"0\n2\n0 0\n5 120\n", "") == entries
    with pytest.raises(CheckpointError):
        checkpoint.decode_epochs(b"0\n1\n-1 0\n", "")


def test_partition_metadata_holds_the_topic_id() -> None:
    topic_id = uuid_from_string("2ZwoAYWZSdqt8k2xZ-kUDQ")
    data = checkpoint.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: 2ZwoAYWZSdqt8k2xZ-kUDQ"
    assert checkpoint.decode_partition_metadata(data, "") == topic_id


@pytest.mark.parametrize(
    "data", [b"", b"version: 0", b"version: 0\ntopic_id: x", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff"]
)
def test_a_damaged_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoint.decode_partition_metadata(data, "f")


def test_meta_properties_keep_lines_that_we_do_not_know() -> None:
    data = b"#\n#Sat Nov 21 2026\nnode.id=1\ndirectory.id=CQ5zGdo25ldOkyFR3Uj-Gg\nversion=1\ncluster.id=c\nx=y\n"
    meta = checkpoint.decode_meta_properties(data, "")
    assert (meta.cluster_id, meta.node_id, meta.others) == ("c", 1, {"x": "y"})
    assert meta.encode() == b"node.id=1\ndirectory.id=CQ5zGdo25ldOkyFR3Uj-Gg\nversion=1\ncluster.id=c\nx=y\n"
    assert checkpoint.decode_meta_properties(meta.encode(), "") == meta


@pytest.mark.parametrize(
    "data",
    [b"", b"version=0\ncluster.id=c\nnode.id=1\n", b"version=1\nnode.id=1\n", b"version=1\ncluster.id=c\nnode.id=x"],
)
def test_damaged_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoint.decode_meta_properties(data, "f")


def test_meta_properties_need_no_directory_id() -> None:
    assert checkpoint.decode_meta_properties(MetaProperties("c", 1).encode(), "").directory_id is None


def test_the_clean_shutdown_file_holds_the_broker_epoch() -> None:
    assert checkpoint.encode_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert checkpoint.decode_clean_shutdown(b'{"version":0,"brokerEpoch":12}') == 12
    assert checkpoint.decode_clean_shutdown(b"") is checkpoint.decode_clean_shutdown(b"[1]") is None


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", (TopicPartition("orders", 0), "")),
        ("a-b.c-12", (TopicPartition("a-b.c", 12), "")),
        ("a-0." + "0f" * 16 + "-delete", (TopicPartition("a", 0), "-delete")),
        ("a-0." + "0f" * 16 + "-stray", (TopicPartition("a", 0), "-stray")),
        ("a-0." + "0f" * 16 + "-future", (TopicPartition("a", 0), "-future")),
        ("lost+found", None),
        ("a-x", None),
        ("-1", None),
        ("a-0-delete", None),
    ],
)
def test_directory_names(name: str, parsed: tuple[TopicPartition, str] | None) -> None:
    assert parse_partition_directory(name) == parsed


def test_a_directory_moved_aside_keeps_within_the_longest_name() -> None:
    name = marked_directory(TopicPartition("t" * 249, 3), bytes(16), "-delete")
    assert len(name) == 255
    assert name.endswith(f"-3.{'0' * 32}-delete")
    parsed = parse_partition_directory(name)
    assert parsed is not None
    assert parsed[1] == "-delete"


def test_segment_files_have_twenty_digits() -> None:
    assert segment_file("/d", 42, ".log") == "/d/00000000000000000042.log"
