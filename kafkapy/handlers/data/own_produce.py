"""Records that this broker writes to a partition it leads, as a client's Produce with acks=-1 would be.

Dead letters of share groups: they are checked like a client's, because the topic is one that clients may have made
(compacted, with a small max.message.bytes, below min.insync.replicas).
"""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data.produce import append_and_wait
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.produce_request import ProduceRequest
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.types import Uuid

PRODUCE: Final = 0
VERSION: Final = 13
CLIENT_ID: Final = "dead-letters"


async def write_own(
    services: Services, topic_id: Uuid, partition_id: int, records: bytes, timeout_ms: int
) -> tuple[int, str | None]:
    """Append a batch; return error code and message once the in-sync replicas have it, or after the time-out."""
    partitions = services.replica_manager.partitions
    partition = partitions.find_by_id(topic_id, partition_id)
    if partition is None:
        topic = partitions.newest_image.topics.by_id.get(topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else partitions.missing_code(topic.name, partition_id)
        return code, None
    connection = ConnectionInfo(CLIENT_ID, "", "", "", 0)
    context = RequestContext(RequestHeader(PRODUCE, VERSION, 0, CLIENT_ID), connection)
    made = PartitionAppend(partition, bytearray(records))
    await append_and_wait(services, context, [made], ProduceRequest(acks=ALL_ACKS, timeout_ms=timeout_ms))
    return made.error_code, made.error_message
