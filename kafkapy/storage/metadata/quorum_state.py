"""The quorum-state file of `__cluster_metadata-0`: the leader epoch, its leader, and this node's vote in it.

One JSON object on one line, QuorumStateData of the protocol, with data_version. Version 0 is used with kraft.version 0
(static voters, which are included; no directory ids), version 1 with kraft.version 1:

    {"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],
     "data_version":0}
    {"leaderId":3,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

The file is replaced by a rename, with file and directory synced: after a crash it holds the old or the new state. It
must never be lost, because other voters rely on the votes and epochs in it.
"""

import json
from typing import Any, Final

from kafkapy.errors import StorageError
from kafkapy.raft.effects import ElectionState
from kafkapy.seams import Disk, failpoint
from kafkapy.types import ZERO_UUID, ReplicaKey, uuid_from_string, uuid_to_string

QUORUM_STATE_FILE: Final = "quorum-state"
HIGHEST_VERSION: Final = 1


class QuorumStateFile:
    """The file in one directory. Methods block; `write` returns when the state is durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> tuple[ElectionState, tuple[int, ...]] | None:
        """Return the state and, in version 0, the voters' ids; None if the file is missing. Raises StorageError."""
        if not self._disk.exists(self.path):
            return None
        data = self._disk.read_file(self.path)
        try:
            return decode_quorum_state(data)
        except ValueError as error:
            raise StorageError(self._directory, f"{self.path} cannot be read: {error}") from error

    def write(self, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        """Make the state durable. Raises StorageError."""
        failpoint("quorum.state.before_write")
        data = encode_quorum_state(state, kraft_version, voter_ids)
        try:
            self._disk.write_file_atomically(self.path, data)
        except OSError as error:
            raise StorageError(self._directory, f"writing {self.path}: {error}") from error
        failpoint("quorum.state.after_write")


def encode_quorum_state(state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> bytes:
    """Return the file's content as Apache Kafka writes it, order of fields included."""
    voted = state.voted
    fields: dict[str, Any]
    voted_id = voted.node_id if voted is not None else -1
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_string(voted.directory_id if voted is not None else ZERO_UUID),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_quorum_state(data: bytes) -> tuple[ElectionState, tuple[int, ...]]:
    """Decode version 0 or 1. Raises ValueError."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    version = _integer(fields, "data_version")
    if not 0 <= version <= HIGHEST_VERSION:
        raise ValueError(f"data_version {version}; 0 to {HIGHEST_VERSION} can be read")
    voted_id = _integer(fields, "votedId")
    directory_id = ZERO_UUID
    if version >= 1:
        directory_id = uuid_from_string(str(fields.get("votedDirectoryId")))
    voted = ReplicaKey(voted_id, directory_id) if voted_id >= 0 else None
    voters = fields.get("currentVoters") or []
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise ValueError("currentVoters is not a list of objects")
    voter_ids = tuple(_integer(voter, "voterId") for voter in voters)
    return ElectionState(_integer(fields, "leaderEpoch"), _integer(fields, "leaderId"), voted), voter_ids


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {json.dumps(value)}, not an integer")
    return value
