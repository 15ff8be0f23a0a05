"""quorum-state as Apache Kafka wrote it, in both versions, and damaged."""

import pytest

from kafkapy.errors import StorageError
from kafkapy.raft.effects import ElectionState
from kafkapy.storage.metadata.quorum_state import QuorumStateFile, decode_quorum_state, encode_quorum_state
from kafkapy.types import ReplicaKey, uuid_from_string
from tests.simulator.disk import SimCrash, SimDisk

VERSION_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
VERSION_1 = b'{"leaderId":3,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


@pytest.mark.parametrize(
    ("data", "state", "kraft_version", "voter_ids"),
    [(VERSION_0, ElectionState(1, 1), 0, (1,)), (VERSION_1, ElectionState(1, 3), 1, ())],
)
def test_the_file_of_apache_kafka_is_read_and_written_to_the_byte(
    data: bytes, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
) -> None:
    assert decode_quorum_state(data) == (state, voter_ids)
    assert encode_quorum_state(state, kraft_version, voter_ids) == data


def test_a_vote_keeps_its_directory_in_version_1() -> None:
    voted = ReplicaKey(2, uuid_from_string("LeqMXqJJQseQMWuar_bOUQ"))
    state = ElectionState(5, -1, voted)
    data = encode_quorum_state(state, 1, ())
    assert b'"votedId":2,"votedDirectoryId":"LeqMXqJJQseQMWuar_bOUQ"' in data
    assert decode_quorum_state(data)[0] == state
    assert decode_quorum_state(encode_quorum_state(state, 0, (1, 2)))[0].voted == ReplicaKey(2, bytes(16))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"{}",
        VERSION_1.replace(b'"data_version":1', b'"data_version":2'),
        VERSION_1.replace(b'"leaderEpoch":1', b'"leaderEpoch":"1"'),
        VERSION_1.replace(b"AAAAAAAAAAAAAAAAAAAAAA", b"AAA"),
        VERSION_0.replace(b'[{"voterId":1}]', b"[1]"),
    ],
)
def test_a_damaged_file_stops_the_start(data: bytes) -> None:
    disk = SimDisk()
    disk.make_directory("/log")
    disk.write_file_atomically("/log/quorum-state", data)
    with pytest.raises(StorageError, match="quorum-state cannot be read"):
        QuorumStateFile(disk, "/log").read()


def test_a_crash_leaves_the_old_state_or_the_new_one() -> None:
    crash_after = 0
    is_complete = False
    while not is_complete:
        disk = SimDisk()
        disk.make_directory("/log")
        file = QuorumStateFile(disk, "/log")
        file.write(ElectionState(1, 1), 1, ())
        disk.sync_all()
        disk.changes, disk.crash_after = 0, crash_after
        try:
            file.write(ElectionState(2, 2), 1, ())
            is_complete = True
        except SimCrash:
            pass
        disk.crash("none")
        found = file.read()
        assert found is not None
        assert found[0] in ([ElectionState(2, 2)] if is_complete else [ElectionState(1, 1), ElectionState(2, 2)])
        crash_after += 1
    assert crash_after > 3


def test_without_a_file_nothing_is_known() -> None:
    assert QuorumStateFile(SimDisk(), "/log").read() is None
