"""Conversion of the core's LeaderChange, KRaftVersion and Voters to control records of the log, and back.

LeaderChange is written at version 0 (ids only) and Voters at version 0, as Apache Kafka 4.4.0 writes them.
"""

from kafkapy.protocol.messages import leader_change_message, voters_record
from kafkapy.protocol.messages.kraft_version_record import KRaftVersionRecord
from kafkapy.protocol.messages.leader_change_message import LeaderChangeMessage
from kafkapy.protocol.messages.voters_record import VotersRecord
from kafkapy.raft.messages import Control, KRaftVersion, LeaderChange, LogBatch, Voters
from kafkapy.raft.voters import Endpoint, Voter, VoterHistory, VoterSet
from kafkapy.record.batch import RecordBatch
from kafkapy.record.builder import build_batch_of_values
from kafkapy.record.control import build_raft_control, read_raft_control
from kafkapy.types import ReplicaKey


def build_log_batch(batch: LogBatch, timestamp_ms: int) -> bytes:
    """Return the bytes of a batch that the leader appends: with one record per control, or per value of its data."""
    if batch.controls:
        return build_raft_control(
            [to_message(control) for control in batch.controls],
            base_offset=batch.base_offset,
            leader_epoch=batch.leader_epoch,
            timestamp_ms=timestamp_ms,
        )
    assert isinstance(batch.data, list)
    return build_batch_of_values(
        batch.data, base_offset=batch.base_offset, leader_epoch=batch.leader_epoch, timestamp_ms=timestamp_ms
    )


def to_message(control: Control) -> LeaderChangeMessage | KRaftVersionRecord | VotersRecord:
    match control:
        case KRaftVersion():
            return KRaftVersionRecord(version=0, kraft_version=control.level)
        case Voters():
            return voters_to_record(control.voters)
        case LeaderChange():
            return LeaderChangeMessage(
                version=0,
                leader_id=control.leader_id,
                voters=[leader_change_message.Voter(voter_id=voter_id) for voter_id in control.voter_ids],
                granting_voters=[
                    leader_change_message.Voter(voter_id=voter_id) for voter_id in control.granting_voter_ids
                ],
            )


def voters_to_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            voters_record.Voter(
                voter_id=voter.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    voters_record.Endpoint(each.name, host=each.host, port=each.port) for each in voter.endpoints
                ],
                kraft_version_feature=voters_record.KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voters
        ],
    )


def voters_from_record(record: VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def read_controls(batch: RecordBatch) -> list[tuple[int, Control]]:
    """Return a control batch's controls with their offsets; unknown record types are skipped.

    Raises InvalidRecordsError, CorruptRecordError.
    """
    found: list[tuple[int, Control]] = []
    for record in batch.records():
        message = read_raft_control(record)
        if isinstance(message, KRaftVersionRecord):
            found.append((record.offset, KRaftVersion(message.kraft_version)))
        elif isinstance(message, VotersRecord):
            found.append((record.offset, Voters(voters_from_record(message))))
        elif isinstance(message, LeaderChangeMessage):
            voter_ids = tuple(voter.voter_id for voter in message.voters)
            granting_ids = tuple(voter.voter_id for voter in message.granting_voters)
            found.append((record.offset, LeaderChange(message.leader_id, voter_ids, granting_ids)))
    return found


def add_to_history(history: VoterHistory, batch: RecordBatch) -> None:
    """Add a control batch's voters and kraft.version to the history (replay of the log at start)."""
    for offset, control in read_controls(batch):
        if isinstance(control, KRaftVersion):
            history.add_kraft_version(offset, control.level)
        elif isinstance(control, Voters):
            history.add_voters(offset, control.voters)


def to_log_batch(batch: RecordBatch) -> LogBatch:
    """Return a fetched batch as the core sees it, with its bytes. Control i has the offset base_offset + i."""
    controls = tuple(control for _, control in read_controls(batch)) if batch.is_control else ()
    return LogBatch(batch.base_offset, batch.last_offset, batch.partition_leader_epoch, controls, batch.raw())
