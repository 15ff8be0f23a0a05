"""Fetch 12-18 of `__cluster_metadata-0` and FetchSnapshot 0-1 on the wire.

Fetch 13: topic ids (KIP-516); 15: the replica in a tagged field (KIP-903); 17: its directory, and the leader's
endpoints (KIP-853); 18: its high watermark, so that a leader with a higher one answers at once (KIP-1166).
FetchSnapshot 1: directory, the leader's endpoints (KIP-853).
"""

from collections.abc import Iterator
from typing import Final

from kafkapy.protocol.messages import fetch_request, fetch_response, fetch_snapshot_request, fetch_snapshot_response
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.protocol.messages.fetch_snapshot_request import FetchSnapshotRequest
from kafkapy.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from kafkapy.protocol.primitives import Records
from kafkapy.raft import messages
from kafkapy.raft.control_records import to_log_batch
from kafkapy.raft.messages import INVALID_REQUEST, NO_HIGH_WATERMARK, NONE
from kafkapy.raft.wire.peer import UNKNOWN_TOPIC_OR_PARTITION, Part, PeerError, WirePeer, check_error
from kafkapy.record.batches import batches
from kafkapy.record.errors import CorruptRecordError
from kafkapy.seams import FileRegion
from kafkapy.types import METADATA_PARTITION, ONE_UUID, OffsetAndEpoch, ReplicaKey

LAST_FETCHED_EPOCH_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
DIRECTORY_SINCE: Final = 17
HIGH_WATERMARK_SINCE: Final = 18
SNAPSHOT_DIRECTORY_SINCE: Final = 1

_TOPIC, _PARTITION = METADATA_PARTITION


class _Fetch:
    def to_request(self, request: messages.FetchRequest, version: int, peer: WirePeer) -> FetchRequest:
        partition = fetch_request.FetchPartition(
            partition=_PARTITION,
            current_leader_epoch=request.leader_epoch,
            fetch_offset=request.fetch_offset,
            last_fetched_epoch=request.last_fetched_epoch,
        )
        if version >= DIRECTORY_SINCE:
            partition.replica_directory_id = request.replica.directory_id
        if version >= HIGH_WATERMARK_SINCE:
            partition.high_watermark = request.high_watermark
        topic = fetch_request.FetchTopic(partitions=[partition])
        if version >= TOPIC_IDS_SINCE:
            topic.topic_id = ONE_UUID
        else:
            topic.topic = _TOPIC
        message = FetchRequest(
            cluster_id=peer.cluster_id, max_wait_ms=request.max_wait_ms, max_bytes=request.max_bytes, topics=[topic]
        )
        if version >= REPLICA_STATE_SINCE:
            message.replica_state = fetch_request.ReplicaState(replica_id=request.replica.node_id)
        else:
            message.replica_id = request.replica.node_id
        return message

    def from_request(self, message: FetchRequest, version: int, peer: WirePeer) -> messages.FetchRequest:
        peer.check_cluster_id(message.cluster_id)
        partition = _fetched_partition(message, version)
        node_id = message.replica_state.replica_id if version >= REPLICA_STATE_SINCE else message.replica_id
        return messages.FetchRequest(
            replica=ReplicaKey(node_id, partition.replica_directory_id),
            leader_epoch=partition.current_leader_epoch,
            fetch_offset=partition.fetch_offset,
            last_fetched_epoch=partition.last_fetched_epoch,
            high_watermark=partition.high_watermark if version >= HIGH_WATERMARK_SINCE else NO_HIGH_WATERMARK,
            max_wait_ms=message.max_wait_ms,
            max_bytes=message.max_bytes,
        )

    def to_response(self, response: messages.FetchResponse, version: int, peer: WirePeer) -> FetchResponse:
        partition = fetch_response.PartitionData(
            partition_index=_PARTITION,
            error_code=response.error,
            high_watermark=response.high_watermark,
            log_start_offset=response.log_start_offset,
            current_leader=fetch_response.LeaderIdAndEpoch(
                leader_id=response.leader_id, leader_epoch=response.leader_epoch
            ),
            records=b"".join(_raw(batch) for batch in response.batches),
        )
        if response.diverging is not None:
            end_offset, epoch = response.diverging
            partition.diverging_epoch = fetch_response.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if response.snapshot_id is not None:
            snapshot = response.snapshot_id
            partition.snapshot_id = fetch_response.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.leader_epoch)
        topic = fetch_response.FetchableTopicResponse(partitions=[partition])
        if version >= TOPIC_IDS_SINCE:
            topic.topic_id = ONE_UUID
        else:
            topic.topic = _TOPIC
        message = FetchResponse(responses=[topic])
        address = peer.leader_address(response)
        if version >= DIRECTORY_SINCE and address is not None:
            message.node_endpoints = [
                fetch_response.NodeEndpoint(response.leader_id, host=address.host, port=address.port)
            ]
        return message

    def from_response(self, message: FetchResponse, version: int, peer: WirePeer) -> messages.FetchResponse:
        check_error(message.error_code)
        if len(message.responses) != 1 or len(message.responses[0].partitions) != 1:
            raise PeerError(INVALID_REQUEST)
        topic, partition = message.responses[0], message.responses[0].partitions[0]
        is_metadata = topic.topic_id == ONE_UUID if version >= TOPIC_IDS_SINCE else topic.topic == _TOPIC
        if not is_metadata or partition.partition_index != _PARTITION:
            raise PeerError(INVALID_REQUEST)
        leader = partition.current_leader
        diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
        return messages.FetchResponse(
            error=partition.error_code,
            leader_epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            leader_endpoints=peer.endpoints_of(leader.leader_id, message.node_endpoints),
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.end_offset >= 0 else None,
            snapshot_id=(
                OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
                if max(snapshot_id.end_offset, snapshot_id.epoch) >= 0
                else None
            ),
            batches=tuple(_whole_batches(_bytes_of(partition.records))),
        )

    def refusal(self, error: PeerError) -> FetchResponse:
        return FetchResponse(error_code=error.code)


class _FetchSnapshot:
    def to_request(self, request: messages.FetchSnapshotRequest, version: int, peer: WirePeer) -> FetchSnapshotRequest:
        partition = fetch_snapshot_request.PartitionSnapshot(
            partition=_PARTITION,
            current_leader_epoch=request.leader_epoch,
            snapshot_id=fetch_snapshot_request.SnapshotId(
                end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.leader_epoch
            ),
            position=request.position,
        )
        if version >= SNAPSHOT_DIRECTORY_SINCE:
            partition.replica_directory_id = request.replica.directory_id
        return FetchSnapshotRequest(
            cluster_id=peer.cluster_id,
            replica_id=request.replica.node_id,
            max_bytes=request.max_bytes,
            topics=[fetch_snapshot_request.TopicSnapshot(name=_TOPIC, partitions=[partition])],
        )

    def from_request(
        self, message: FetchSnapshotRequest, _version: int, peer: WirePeer
    ) -> messages.FetchSnapshotRequest:
        peer.check_cluster_id(message.cluster_id)
        if len(message.topics) != 1 or len(message.topics[0].partitions) != 1 or message.max_bytes < 0:
            raise PeerError(INVALID_REQUEST)
        partition = message.topics[0].partitions[0]
        if (message.topics[0].name, partition.partition) != METADATA_PARTITION:
            raise PeerError(UNKNOWN_TOPIC_OR_PARTITION)
        return messages.FetchSnapshotRequest(
            replica=ReplicaKey(message.replica_id, partition.replica_directory_id),
            leader_epoch=partition.current_leader_epoch,
            snapshot_id=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            position=partition.position,
            max_bytes=message.max_bytes,
        )

    def to_response(
        self, response: messages.FetchSnapshotResponse, version: int, peer: WirePeer
    ) -> FetchSnapshotResponse:
        end_offset, epoch = response.snapshot_id or (0, 0)
        partition = fetch_snapshot_response.PartitionSnapshot(
            index=_PARTITION,
            error_code=response.error,
            snapshot_id=fetch_snapshot_response.SnapshotId(end_offset=end_offset, epoch=epoch),
            current_leader=fetch_snapshot_response.LeaderIdAndEpoch(
                leader_id=response.leader_id, leader_epoch=response.leader_epoch
            ),
            size=response.size_bytes,
            position=response.position if response.error == NONE else 0,
            unaligned_records=response.data,
        )
        message = FetchSnapshotResponse(
            topics=[fetch_snapshot_response.TopicSnapshot(name=_TOPIC, partitions=[partition])]
        )
        address = peer.leader_address(response)
        if version >= SNAPSHOT_DIRECTORY_SINCE and address is not None:
            message.node_endpoints = [
                fetch_snapshot_response.NodeEndpoint(response.leader_id, host=address.host, port=address.port)
            ]
        return message

    def from_response(
        self, message: FetchSnapshotResponse, _version: int, peer: WirePeer
    ) -> messages.FetchSnapshotResponse:
        check_error(message.error_code)
        if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
            raise PeerError(INVALID_REQUEST)
        partition = message.topics[0].partitions[0]
        if (message.topics[0].name, partition.index) != METADATA_PARTITION:
            raise PeerError(INVALID_REQUEST)
        leader = partition.current_leader
        return messages.FetchSnapshotResponse(
            error=partition.error_code,
            leader_epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            leader_endpoints=peer.endpoints_of(leader.leader_id, message.node_endpoints),
            snapshot_id=(
                OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
                if partition.error_code == NONE
                else None
            ),
            size_bytes=partition.size,
            position=partition.position,
            data=_bytes_of(partition.unaligned_records),
        )

    def refusal(self, error: PeerError) -> FetchSnapshotResponse:
        return FetchSnapshotResponse(error_code=error.code)


def _fetched_partition(message: FetchRequest, version: int) -> fetch_request.FetchPartition:
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise PeerError(INVALID_REQUEST)
    topic, partition = message.topics[0], message.topics[0].partitions[0]
    is_metadata = topic.topic_id == ONE_UUID if version >= TOPIC_IDS_SINCE else topic.topic == _TOPIC
    if not is_metadata or partition.partition != _PARTITION:
        raise PeerError(INVALID_REQUEST)
    return partition


def _raw(batch: messages.LogBatch) -> bytes | memoryview:
    assert isinstance(batch.data, bytes | memoryview)
    return batch.data


def _whole_batches(data: bytes) -> Iterator[messages.LogBatch]:
    """Yield the batches up to one whose checksum is wrong, as of records that have changed on the leader's disk.

    Raises CorruptRecordError if that is the first: such a response is none. The log would refuse the batch only after
    the core has counted it, and the node would stop.
    """
    for count, batch in enumerate(batches(data)):
        if batch.has_valid_crc():
            yield to_log_batch(batch)
        elif count == 0:
            raise CorruptRecordError(f"the CRC of the batch at offset {batch.base_offset} does not fit")
        else:
            return


def _bytes_of(records: Records) -> bytes:
    """Return a copy of received records, since the frame that holds them is freed."""
    assert not isinstance(records, FileRegion)
    return bytes(records or b"")


FETCH: Final[Part] = _Fetch()
FETCH_SNAPSHOT: Final[Part] = _FetchSnapshot()
