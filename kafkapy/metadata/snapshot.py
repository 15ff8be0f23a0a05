"""Encoding an image as the records of a metadata snapshot, in slices.

The image is immutable, so the caller may pause between slices for any time while newer images are made. Order and
record versions are those of Apache Kafka's ImageWriter: features (metadata.version first), cluster, topics, configs,
quotas, producer ids, ACLs, SCRAM, delegation tokens.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.metadata.features import record_version
from kafkapy.metadata.image import METADATA_VERSION, MetadataImage
from kafkapy.metadata.record_serde import encode_record
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.topic_record import TopicRecord

if TYPE_CHECKING:
    from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord

RECORDS_PER_SLICE: Final = 128
"""Encoding a slice takes about a millisecond, the time that the event loop may be blocked."""


def image_records(image: MetadataImage) -> Iterator[Any]:
    """Yield the records that describe the image; replaying them over an empty image gives an equal one."""
    from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord

    yield from _feature_records(image)
    yield from (controller.to_record() for controller in image.cluster.controllers.values())
    yield from (broker.to_record() for broker in image.cluster.brokers.values())
    for topic in image.topics.by_name.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition_id, partition in topic.partitions.items():
            yield partition.to_record(topic.topic_id, partition_id)
    for resource, configs in image.configs.by_resource.items():
        for name, value in configs.items():
            yield ConfigRecord(
                resource_type=resource.resource_type, resource_name=resource.name, name=name, value=value
            )
    yield from _quota_records(image)
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.delegation_tokens.values()


def encoded_slices(image: MetadataImage, records_per_slice: int = RECORDS_PER_SLICE) -> Iterator[list[bytes]]:
    """Yield the image's records, framed for the log, in lists of at most `records_per_slice`."""
    metadata_version = image.features.metadata_version
    assert metadata_version is not None or image.is_empty, "an image with content has a metadata version"
    encoded: list[bytes] = []
    for record in image_records(image):
        encoded.append(encode_record(record, record_version(record, metadata_version or 0)))
        if len(encoded) == records_per_slice:
            yield encoded
            encoded = []
    if encoded:
        yield encoded


def _feature_records(image: MetadataImage) -> Iterator[FeatureLevelRecord]:
    if image.features.metadata_version is not None:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.features.metadata_version)
    for name, level in image.features.levels.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)


def _quota_records(image: MetadataImage) -> "Iterator[ClientQuotaRecord]":
    from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData

    for entity, quotas in image.client_quotas.items():
        parts = [EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity]
        for key, value in quotas.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)
