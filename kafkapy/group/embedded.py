"""The consumer protocol embedded in JoinGroup and SyncGroup: subscriptions and assignments of classic consumers.

Both begin with their version (int16). A version above the latest known one is read as the latest known one.

    0001 00000001 0003 666f6f ffffffff 00000000     subscription, version 1: topic "foo", no user data, owns nothing

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment; Apache Kafka's ConsumerProtocol.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kafkapy.errors import ProtocolError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from kafkapy.protocol.primitives import Writer
from kafkapy.types import Uuid

_VERSION: Final = Struct(">h")


def read_version(data: bytes) -> int:
    """Return the version of an encoded subscription or assignment. Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError("Buffer underflow while parsing consumer protocol's header")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription in a classic member's metadata. Raises ProtocolError."""
    version = min(read_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.read(metadata, _VERSION.size, version)[0]


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Decode the assignment of a classic member. Raises ProtocolError."""
    version = min(read_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.read(assignment, _VERSION.size, version)[0]


def write_assignment(assignment: Assignment, image: MetadataImage, version: int) -> bytes:
    """Encode an assignment for a classic client. Deleted topics are left out. Raises ProtocolError."""
    if version < ConsumerProtocolAssignment.MIN_VERSION:
        raise ProtocolError(f"Unsupported assignment version: {version}")
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    topics = [
        AssignedTopic(topic.name, partitions=sorted(partitions))
        for topic_id, partitions in sorted(assignment.items())
        if (topic := image.topics.by_id.get(topic_id)) is not None
    ]
    out = Writer()
    out += _VERSION.pack(version)
    ConsumerProtocolAssignment(topics).write(out, version)
    return bytes(out)


def by_topic_id(topics: Iterable[AssignedTopic | OwnedTopic], image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Return the partitions by topic id, without those that do not exist."""
    found: dict[Uuid, frozenset[int]] = {}
    for topic in topics:
        known = image.topics.by_name.get(topic.topic)
        partitions = known.partitions.keys() & topic.partitions if known is not None else None
        if known is not None and partitions:
            found[known.topic_id] = found.get(known.topic_id, frozenset()) | partitions
    return found
