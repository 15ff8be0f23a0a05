"""ElectLeaders 0-2: elect the preferred replica of partitions, or any live replica (unclean) (KIP-183, KIP-460).

Needs ALTER on the cluster. v1: the election type, 0 preferred or 1 unclean, and a top-level error code. v2: flexible. A
request with null partitions is for all; those that need no election are left out of the response. REQUEST_TIMED_OUT at
once with a timeout of 0 or less, unless the request names no topic, as in Apache Kafka. Deviation: Apache Kafka refuses
a request for more than 10,000 elections. Here any number is decided, because they are decided in slices.
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.requested_elections import ELECTIONS, ELECTIONS_PER_SLICE, TopicPartitionKey
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from kafkapy.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkapy.security.authorizer import AclOperation

CODED_SINCE: Final = 1
"""The version with an error code of the whole request."""


async def handle(services: Services, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    try:
        check_cluster(services, context, AclOperation.ALTER)
        if request.topic_partitions == []:
            return ElectLeadersResponse()
        if request.timeout_ms <= 0:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        if request.election_type not in ELECTIONS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        if request.topic_partitions is None:
            return await _elect_all(services, request)
        return await _elect_some(services, request)
    except ApiError as error:
        return _failure(request, error, context.api_version)


async def _elect_some(services: Services, request: ElectLeadersRequest) -> ElectLeadersResponse:
    requested = _requested(request)
    errors = iter(await _elect(services, request, requested))
    response = ElectLeadersResponse()
    for topic in request.topic_partitions or ():
        results = [_result(partition_id, next(errors)) for partition_id in topic.partitions]
        response.replica_election_results.append(ReplicaElectionResult(topic.topic, partition_result=results))
    return response


async def _elect_all(services: Services, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect for all partitions that could change; the response has every topic, as in Apache Kafka."""
    candidates = await services.metadata_changes.change(lambda controller, _: controller.elections.decide_candidates())
    errors = await _elect(services, request, candidates)
    by_topic = {
        name: ReplicaElectionResult(name, partition_result=[]) for name in services.metadata.image.topics.by_name
    }
    for (name, partition_id), error in zip(candidates, errors, strict=True):
        if error is None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
            results = by_topic.setdefault(name, ReplicaElectionResult(name, partition_result=[]))
            results.partition_result.append(_result(partition_id, error))
    return ElectLeadersResponse(replica_election_results=list(by_topic.values()))


async def _elect(
    services: Services, request: ElectLeadersRequest, partitions: list[TopicPartitionKey]
) -> list[ApiError | None]:
    errors: list[ApiError | None] = []
    for start in range(0, len(partitions), ELECTIONS_PER_SLICE):
        part = partitions[start : start + ELECTIONS_PER_SLICE]
        errors += await services.metadata_changes.change(
            lambda controller, _, part=part: controller.elections.decide_elect(request.election_type, part),  # type: ignore[misc]
            timeout_ms=request.timeout_ms,
        )
    return errors


def _requested(request: ElectLeadersRequest) -> list[TopicPartitionKey]:
    return [(topic.topic, partition) for topic in request.topic_partitions or () for partition in topic.partitions]


def _result(partition_id: int, error: ApiError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id, error_message=None)
    return PartitionResult(partition_id, error_code=int(error.code), error_message=error.message)


def _failure(request: ElectLeadersRequest, error: ApiError, version: int) -> ElectLeadersResponse:
    """Return an error of the whole request, on each partition, too: version 0 has no top-level error code."""
    results = [
        ReplicaElectionResult(
            topic.topic, partition_result=[_result(partition, error) for partition in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    error_code = int(error.code) if version >= CODED_SINCE else 0
    return ElectLeadersResponse(error_code=error_code, replica_election_results=results)
