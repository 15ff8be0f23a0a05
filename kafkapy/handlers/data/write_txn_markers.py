"""WriteTxnMarkers 1-2: a transaction coordinator or an administrator ends transactions in partitions led here.

Answered once all in-sync replicas have the markers. v2: the transaction version of the producer's client, which
determines the epochs that a partition accepts (KIP-1228); it is 0 in v1 and from the Admin client.
"""

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import completion
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from kafkapy.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kafkapy.runtime.coordinators.markers import LocalMarkers, Marker, MarkerResults
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import TopicPartition


async def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    is_allowed = _is_allowed(services, context)
    by_partition: dict[TopicPartition, list[Marker]] = {}
    for each in request.markers:
        for topic_partition in dict.fromkeys(_partitions(each)):
            by_partition.setdefault(topic_partition, []).append(_marker(each))
    if is_allowed:
        results = await _write(services, by_partition)
    else:
        if context.meter is not None:
            context.meter.refuse_node()
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results = {topic_partition: [code] * len(markers) for topic_partition, markers in by_partition.items()}
    return _response(request, by_partition, results)


def _is_allowed(services: Services, context: RequestContext) -> bool:
    """Whether the sender has ALTER (administrators: kafka-transactions.sh abort) or CLUSTER_ACTION (brokers)."""
    authorize = services.authorizer.authorize
    return authorize(context, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False) or authorize(
        context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )


async def _write(services: Services, by_partition: dict[TopicPartition, list[Marker]]) -> MarkerResults:
    results: MarkerResults = {}
    future, done = completion()

    def on_done(found: MarkerResults) -> None:
        nonlocal results
        results = found
        done()

    sink = LocalMarkers(services.replica_manager, services.groups, services.clock)
    sink.write(by_partition, timeout_ms=services.config.node.request_timeout_ms, on_done=on_done)
    await future
    return results


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _marker(marker: WritableTxnMarker) -> Marker:
    return Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _response(
    request: WriteTxnMarkersRequest, by_partition: dict[TopicPartition, list[Marker]], results: MarkerResults
) -> WriteTxnMarkersResponse:
    """Return a result for each producer. If it has several markers for a partition, the last one's code counts."""
    codes: dict[int, dict[TopicPartition, int]] = {marker.producer_id: {} for marker in request.markers}
    for topic_partition, markers in by_partition.items():
        for marker, code in zip(markers, results[topic_partition], strict=True):
            codes[marker.producer_id][topic_partition] = code
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(producer_id, topics=_topics(of_producer))
            for producer_id, of_producer in codes.items()
        ]
    )


def _topics(codes: dict[TopicPartition, int]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (topic, partition), code in codes.items():
        result = topics.setdefault(topic, WritableTxnMarkerTopicResult(topic, partitions=[]))
        result.partitions.append(WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code))
    return list(topics.values())
