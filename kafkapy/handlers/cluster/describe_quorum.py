"""DescribeQuorum 0-2: the leader of `__cluster_metadata`, and the log end offset of each voter and observer (KIP-595).

A request for any other topic or partition gets UNKNOWN_TOPIC_OR_PARTITION for all its partitions. v1: fetch and
caught-up times (KIP-836). v2: error messages, the replicas' directories, the voters' endpoints (KIP-853).
"""

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from kafkapy.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkapy.runtime.quorum.description import QuorumDescription, ReplicaDescription
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import METADATA_PARTITION, ZERO_UUID


async def handle(services: Services, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=error, error_message=error.message)
    if not _is_about_the_metadata(request):
        return _failure(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    description = services.quorum.describe()
    if description is None:
        return _failure(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return _described(description, context.api_version)


def _is_about_the_metadata(request: DescribeQuorumRequest) -> bool:
    """Return whether the request is for the metadata partition only."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return (topic.topic_name, topic.partitions[0].partition_index) == METADATA_PARTITION


def _failure(request: DescribeQuorumRequest, error: ErrorCode) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition_index, error_code=error, error_message=error.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _described(description: QuorumDescription, api_version: int) -> DescribeQuorumResponse:
    partition = PartitionData(
        partition_index=METADATA_PARTITION.partition,
        leader_id=description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        current_voters=[_state(replica, api_version) for replica in description.voters],
        observers=[_state(replica, api_version) for replica in description.observers],
    )
    nodes = [
        Node(node_id=node_id, listeners=[Listener(each.name, host=each.host, port=each.port) for each in endpoints])
        for node_id, endpoints in description.endpoints.items()
    ]
    topic = TopicData(topic_name=METADATA_PARTITION.topic, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes if api_version >= 2 else [])


def _state(replica: ReplicaDescription, api_version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id if api_version >= 2 else ZERO_UUID,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_timestamp_ms,
        last_caught_up_timestamp=replica.last_caught_up_timestamp_ms,
    )
