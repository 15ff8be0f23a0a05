"""Formatting: to the byte what kafka-storage.sh of Apache Kafka 4.3.1 writes, and its refusals."""

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.load import load
from kafkapy.seams import Disk
from kafkapy.storage.offline.format import (
    FormatError,
    FormatRequest,
    Voter,
    bootstrap_checkpoint,
    embedded_config,
    format_directories,
    format_embedded,
    has_static_voters,
    read_meta_properties,
    voters_checkpoint,
)
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import uuid_from_string

# kafka-storage.sh format --standalone of 4.3.1 at node 3, its batches as they came: header, 6 feature levels, footer.
BOOTSTRAP_CHECKPOINT = bytes.fromhex(
    "0000000000000000000000470000000002e88285a5002000000000000001a1fc698fd9000001a1fc698fd9ffffffffff"
    "ffffffffffffffffff000000012a0000000800000003160000000000000000000000000000000000000001000000f100"
    "0000000231ac572b000000000005000001a1fc69904d000001a1fc69904dffffffffffffffffffffffffffff00000006"
    "3a000000012e010c00116d657461646174612e76657273696f6e001e00005a000002014e010c0021656c696769626c65"
    "2e6c65616465722e7265706c696361732e76657273696f6e00010000340000040128010c000e67726f75702e76657273"
    "696f6e00010000340000060128010c000e73686172652e76657273696f6e0001000038000008012c010c001073747265"
    "616d732e76657273696f6e000100004000000a0134010c00147472616e73616374696f6e2e76657273696f6e00020000"
    "00000000000000070000003f00000000023ec8ec65002000000000000001a1fc699053000001a1fc699053ffffffffff"
    "ffffffffffffffffff000000011a00000008000000040600000000"
)
VOTERS_CHECKPOINT = bytes.fromhex(
    "00000000000000000000009a0000000002c3216881002000000002000001a1fc6990b0000001a1fc6990b0ffffffffff"
    "ffffffffffffffffff000000032a0000000800000003160000000001a1fc69908b00001e00000208000000050a000000"
    "010000820100000408000000066e0000020000000352ecacc849574638a7b27ef056e16fe6020b434f4e54524f4c4c45"
    "520a3132372e302e302e314a9500000000010000000000000000000000030000003f000000000203c7a9eb0020000000"
    "00000001a1fc6990c5000001a1fc6990c5ffffffffffffffffffffffffffff000000011a000000080000000406000000"
    "00"
)
FEATURES = {
    "metadata.version": 30,
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
CLUSTER_ID = "CCCCCCCCCCCCCCCCCCCCCQ"
DIRECTORY_ID = "UuysyElXRjinsn7wVuFv5g"


class FixedClock:
    def wall_ms(self) -> int:
        return 1_795_000_000_000

    def monotonic_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return 0


class CountingRandom:
    """UUIDs 01.., 02.., in order."""

    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return bytes([self.count]) * 16

    def randrange(self, start: int, stop: int) -> int:
        return start


def node(directory: object, **changes: str) -> BrokerConfig:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "3",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "log.dirs": str(directory),
    }
    return load({**properties, **{key.replace("_", "."): value for key, value in changes.items()}})[0]


def run_format(request: FormatRequest, disk: Disk | None = None) -> list[str]:
    lines: list[str] = []
    format_directories(request, disk or SystemDisk(), CountingRandom(), FixedClock(), lines.append)
    return lines


def without_times_and_crcs(data: bytes) -> bytes:
    """Each batch with its CRC and its two timestamps zeroed, and the snapshot header's own time."""
    batches, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        batch = bytearray(data[position : position + size])
        batch[17:21] = bytes(4)
        batch[27:43] = bytes(16)
        if batch[70] == 0x16:  # a snapshot header's value: int16 version, int64 time
            batch[73:81] = bytes(8)
        batches.append(bytes(batch))
        position += size
    return b"".join(batches)


def test_bootstrap_checkpoint_is_kafkas_but_for_its_times() -> None:
    written = bootstrap_checkpoint(FEATURES, now_ms=1_795_000_000_000)
    assert without_times_and_crcs(written) == without_times_and_crcs(BOOTSTRAP_CHECKPOINT)


def test_voters_checkpoint_is_kafkas_but_for_its_times() -> None:
    voter = Voter(3, "127.0.0.1", 19093, uuid_from_string(DIRECTORY_ID))
    written = voters_checkpoint([voter], "CONTROLLER", kraft_version=1, now_ms=1_795_000_000_000)
    assert without_times_and_crcs(written) == without_times_and_crcs(VOTERS_CHECKPOINT)


def test_standalone_names_the_directory_as_voter(tmp_path) -> None:
    config = node(tmp_path / "a")
    lines = run_format(FormatRequest(config, CLUSTER_ID, is_standalone=True))
    properties = read_meta_properties(SystemDisk(), f"{tmp_path}/a")
    assert properties is not None
    assert (properties.cluster_id, properties.node_id, properties.directory_id) == (CLUSTER_ID, 3, b"\1" * 16)
    checkpoint = (tmp_path / "a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint").read_bytes()
    assert b"\1" * 16 in checkpoint
    assert lines == [f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.4-IV2."]
    assert not has_static_voters(SystemDisk(), f"{tmp_path}/a")


def test_each_log_directory_has_an_id_of_its_own(tmp_path) -> None:
    config = node(f"{tmp_path}/a,{tmp_path}/b")
    run_format(FormatRequest(config, CLUSTER_ID, is_standalone=True))
    found = [read_meta_properties(SystemDisk(), f"{tmp_path}/{name}") for name in ("a", "b")]
    assert [properties and properties.directory_id for properties in found] == [b"\1" * 16, b"\2" * 16]
    assert not (tmp_path / "b/__cluster_metadata-0").exists()


def test_static_voters_need_no_checkpoint_of_voters(tmp_path) -> None:
    config = node(tmp_path / "a", controller_quorum_voters="3@127.0.0.1:19093")
    run_format(FormatRequest(config, CLUSTER_ID))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert has_static_voters(SystemDisk(), f"{tmp_path}/a")


def test_initial_controllers_are_written_with_their_directories(tmp_path) -> None:
    voters = [Voter.parse(f"3@127.0.0.1:19093:{DIRECTORY_ID}"), Voter.parse("4@[::1]:19094:AAAAAAAAAAAAAAAAAAAABA")]
    run_format(FormatRequest(node(tmp_path / "a"), CLUSTER_ID, voters=voters))
    properties = read_meta_properties(SystemDisk(), f"{tmp_path}/a")
    assert properties is not None
    assert properties.directory_id == uuid_from_string(DIRECTORY_ID)


def test_formatted_directory_is_refused_unless_ignored(tmp_path) -> None:
    request = FormatRequest(node(tmp_path / "a"), CLUSTER_ID, is_standalone=True)
    run_format(request)
    with pytest.raises(FormatError, match=r"is already formatted\. Use --ignore-formatted"):
        run_format(request)
    ignoring = FormatRequest(node(tmp_path / "a"), CLUSTER_ID, is_standalone=True, ignore_formatted=True)
    assert run_format(ignoring) == ["All of the log directories are already formatted."]


@pytest.mark.parametrize(
    ("request_changes", "config_changes", "message"),
    [
        ({}, {}, "you must specify one of the following: --standalone"),
        ({"is_standalone": True}, {"controller_quorum_voters": "3@h:1"}, "You cannot specify controller.quorum.voters"),
        ({"is_standalone": True, "feature_levels": {"x": 1}}, {}, "Unsupported feature: x"),
        ({"is_standalone": True, "feature_levels": {"group.version": 9}}, {}, "No feature:"),
        ({"is_standalone": True, "feature_levels": {"kraft.version": 0}}, {}, "Cannot set kraft.version to 0 if"),
        ({"feature_levels": {"kraft.version": 1}}, {"controller_quorum_voters": "3@h:1"}, "to 1 unless"),
    ],
)
def test_what_cannot_be_formatted(tmp_path, request_changes, config_changes, message) -> None:
    with pytest.raises(FormatError, match=message):
        run_format(FormatRequest(node(tmp_path / "a", **config_changes), CLUSTER_ID, **request_changes))
    assert not (tmp_path / "a").exists()


def test_other_cluster_id_is_refused(tmp_path) -> None:
    run_format(FormatRequest(node(tmp_path / "a"), CLUSTER_ID, is_standalone=True))
    other = FormatRequest(node(f"{tmp_path}/a,{tmp_path}/b"), "other", is_standalone=True, ignore_formatted=True)
    with pytest.raises(FormatError, match=r"Invalid cluster\.id"):
        run_format(other)


@pytest.mark.parametrize(
    "text", ["3", "3@h", "3@h:1", "x@h:1:AAAAAAAAAAAAAAAAAAAABA", "3@h:1:zz", "-3@h:1:AAAAAAAAAAAAAAAAAAAABA"]
)
def test_malformed_voters_are_refused(text) -> None:
    with pytest.raises(FormatError):
        Voter.parse(text)


def test_embedded_directory_is_formatted_once_and_keeps_its_ids(tmp_path) -> None:
    disk, directory = SystemDisk(), f"{tmp_path}/data"
    config, warnings = embedded_config(disk, directory, 0)
    format_embedded(config, disk, CountingRandom(), FixedClock())
    first = read_meta_properties(disk, directory)
    format_embedded(embedded_config(disk, directory, 0)[0], disk, CountingRandom(), FixedClock())
    assert first == read_meta_properties(disk, directory)
    assert (config.node_id, warnings) == (1, [])


def test_embedded_node_takes_the_node_id_it_finds(tmp_path) -> None:
    run_format(FormatRequest(node(tmp_path / "a"), CLUSTER_ID, is_standalone=True))
    config, _ = embedded_config(SystemDisk(), f"{tmp_path}/a", 0)
    assert config.node_id == 3
    assert config.quorum_voters == {}


def test_embedded_node_names_the_static_voters_that_it_finds(tmp_path) -> None:
    static = node(tmp_path / "a", controller_quorum_voters="3@127.0.0.1:19093")
    run_format(FormatRequest(static, CLUSTER_ID))
    config, _ = embedded_config(SystemDisk(), f"{tmp_path}/a", 0)
    assert list(config.quorum_voters) == [3]
