"""Deltas and images: what a record changes, what stays shared, what a snapshot restores."""

import gc

import pytest

from kafkapy.metadata.delta import MetadataDelta, delta_steps, delta_to, difference
from kafkapy.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC, MetadataImage, Provenance
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.record_serde import decode_record
from kafkapy.metadata.registrations import NO_LEADER_CHANGE, RECOVERING, PartitionRegistration
from kafkapy.metadata.snapshot import encoded_slices, image_records
from kafkapy.metadata.topics_delta import LocalPartition
from kafkapy.protocol.messages.abort_transaction_record import AbortTransactionRecord
from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from kafkapy.protocol.messages.begin_transaction_record import BeginTransactionRecord
from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord
from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
from kafkapy.protocol.messages.end_transaction_record import EndTransactionRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord
from kafkapy.protocol.messages.register_controller_record import RegisterControllerRecord
from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
from kafkapy.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.protocol.messages.unregister_controller_record import UnregisterControllerRecord
from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkapy.types import TopicPartition
from tests.support.controllers import Cluster, published_by

A, B = b"a" * 16, b"b" * 16
DIRECTORY = b"d" * 16
AT_9 = Provenance(9, 1, 0)


def replayed(records: list[object], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(AT_9)


def partition(topic_id: bytes, partition_id: int, **changes: object) -> PartitionRecord:
    fields = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        directories=[DIRECTORY, DIRECTORY],
        **{**fields, **changes},  # type: ignore[arg-type]
    )


def topic(name: str, topic_id: bytes) -> list[object]:
    return [TopicRecord(name=name, topic_id=topic_id), partition(topic_id, 0)]


EVERYTHING = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="streams.version", feature_level=1),
    *topic("orders", A),
    partition(A, 1, eligible_leader_replicas=[2], last_known_elr=[1], isr=[1]),
    ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
    ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=9.5),
    ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=3000),
    AccessControlEntryRecord(id=B, resource_type=2, resource_name="orders", principal="User:a", host="*", operation=3),
    UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
    DelegationTokenRecord(owner="User:a", requester="User:a", token_id="t1"),
]


def test_snapshot_restores_everything_that_passes_through() -> None:
    image = replayed(EVERYTHING)

    values = [value for part in encoded_slices(image, records_per_slice=3) for value in part]
    restored = delta_to(EMPTY_IMAGE, [decode_record(value) for value in values]).apply(AT_9)

    assert restored == image
    assert image.next_producer_id == 3000
    assert image.client_quotas == {(("user", None),): {"producer_byte_rate": 9.5}}
    assert (1, "alice") in image.scram


def test_untouched_parts_are_shared_with_the_image_before() -> None:
    before = replayed(EVERYTHING)

    after = replayed(topic("events", B), before)

    assert after.configs is before.configs
    assert after.cluster is before.cluster
    assert after.topics.by_id[A] is before.topics.by_id[A]


def test_deleting_a_topic_deletes_its_configs() -> None:
    image = replayed([RemoveTopicRecord(topic_id=A)], replayed(EVERYTHING))

    assert "orders" not in image.topics.by_name
    assert image.configs.of(RESOURCE_TOPIC, "orders") == {}


def test_topic_created_again_in_one_delta_has_the_new_id() -> None:
    before = replayed(EVERYTHING)
    delta = MetadataDelta(before)
    for record in [RemoveTopicRecord(topic_id=A), *topic("orders", B)]:
        delta.replay(record)

    after = delta.apply(AT_9)

    assert after.topics.by_name["orders"].topic_id == B
    assert list(after.topics.by_id) == [B]
    assert list(delta.topics.deleted) == [A]
    assert delta.topics.local_changes(1).deleted[TopicPartition("orders", 0)] == A
    assert delta.topics.local_changes(1).leaders[TopicPartition("orders", 0)].topic_id == B


def test_leader_change_raises_leader_epoch_and_any_change_the_partition_epoch() -> None:
    before = replayed(EVERYTHING)
    shrink = PartitionChangeRecord(topic_id=A, partition_id=0, isr=[1])
    elect = PartitionChangeRecord(topic_id=A, partition_id=0, leader=2, isr=[2])

    shrunk = replayed([shrink], before).topics.by_name["orders"].partitions[0]
    elected = replayed([shrink, elect], before).topics.by_name["orders"].partitions[0]

    assert (shrunk.leader, shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == (1, (1,), 0, 1)
    assert (elected.leader, elected.isr, elected.leader_epoch, elected.partition_epoch) == (2, (2,), 1, 2)


def test_elections_that_are_not_of_the_isr_are_counted() -> None:
    delta = MetadataDelta(replayed(EVERYTHING))
    for partition_id, leader, recovery in ((0, 2, RECOVERING), (1, 2, -1), (1, 1, -1), (0, NO_LEADER_CHANGE, -1)):
        change = PartitionChangeRecord(topic_id=A, partition_id=partition_id, leader=leader)
        change.leader_recovery_state = recovery
        delta.replay(change)
    topics = delta.topics_changed
    assert topics is not None
    assert (topics.unclean_election_count, topics.eligible_election_count) == (1, 1)


def test_local_changes_distinguish_leaders_followers_and_lost_replicas() -> None:
    to_3 = PartitionChangeRecord(
        topic_id=A, partition_id=1, leader=3, replicas=[1, 2, 3], isr=[3], directories=[DIRECTORY] * 3
    )
    delta = MetadataDelta(replayed([to_3], replayed(EVERYTHING)))
    delta.replay(PartitionChangeRecord(topic_id=A, partition_id=0, leader=2))
    delta.replay(
        PartitionChangeRecord(topic_id=A, partition_id=1, replicas=[2, 3], isr=[3], directories=[DIRECTORY] * 2)
    )

    of_1, of_2 = delta.topics.local_changes(1), delta.topics.local_changes(2)

    assert list(of_1.followers) == [TopicPartition("orders", 0)]
    assert of_1.deleted == {TopicPartition("orders", 1): A}
    led = of_2.leaders[TopicPartition("orders", 0)]
    assert isinstance(led, LocalPartition)
    assert led.is_new_leader_epoch
    assert not of_2.followers[TopicPartition("orders", 1)].is_new_leader_epoch


def test_clear_elr_forgets_eligible_leaders_of_one_topic_or_all() -> None:
    for name in ("orders", ""):
        image = replayed([ClearElrRecord(topic_name=name)], replayed(EVERYTHING))

        cleared = image.topics.by_name["orders"].partitions[1]
        assert (cleared.elr, cleared.last_known_elr, cleared.partition_epoch) == ((), (), 1)
        assert image.topics.by_name["orders"].partitions[0].partition_epoch == 0


def test_feature_at_level_zero_is_gone() -> None:
    image = replayed([FeatureLevelRecord(name="streams.version", feature_level=0)], replayed(EVERYTHING))

    assert dict(image.features.levels) == {"metadata.version": 30}


def test_a_snapshot_over_the_same_image_keeps_no_second_one() -> None:
    topics = [topic(f"topic-{number}", number.to_bytes(16)) for number in range(1, 1001)]
    image = replayed([record for records in topics for record in records])
    before = _registration_count()
    most = max(_registration_count() for _ in delta_steps(image, image_records(image)))
    assert most - before < 10
    assert delta_to(image, image_records(image)).topics_changed is None


def _registration_count() -> int:
    return sum(isinstance(each, PartitionRegistration) for each in gc.get_objects())


def test_snapshot_deletes_what_it_does_not_mention() -> None:
    before = replayed(EVERYTHING)
    wanted = replayed([FeatureLevelRecord(name="metadata.version", feature_level=30), *topic("events", B)])

    delta = delta_to(before, list(image_records(wanted)))

    assert delta.apply(AT_9) == wanted
    assert delta.topics.local_changes(1).deleted[TopicPartition("orders", 0)] == A
    assert difference(before, wanted).apply(AT_9) == wanted


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=B),
        PartitionChangeRecord(topic_id=B, partition_id=0),
        PartitionChangeRecord(topic_id=A, partition_id=9),
        TopicRecord(name="orders", topic_id=B),
        RemoveAccessControlEntryRecord(id=A),
        ClearElrRecord(topic_name="nowhere"),
        FeatureLevelRecord(name="metadata.version", feature_level=6),
    ],
)
def test_records_that_cannot_follow_are_our_mistake(record: object) -> None:
    with pytest.raises(AssertionError):
        replayed([record], replayed(EVERYTHING))


@pytest.mark.parametrize(
    "record",
    [
        RemoveAccessControlEntryRecord(id=B),
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        UnregisterControllerRecord(controller_id=7),
    ],
)
def test_a_second_removal_is_our_mistake(record: object) -> None:
    before = replayed([*EVERYTHING, RegisterControllerRecord(controller_id=7)])
    replayed([record], before)
    with pytest.raises(AssertionError):
        replayed([record, record], before)


def test_creating_topics_one_image_at_a_time_leaves_older_images_alone() -> None:
    cluster = Cluster()
    images = []
    for index in range(50):
        for record in topic(f"t{index}", bytes([index]) * 16):
            delta = MetadataDelta(cluster.image)
            delta.replay(record)
            cluster.image = delta.apply(AT_9)
        images.append(cluster.image)

    assert [len(image.topics.by_name) for image in images] == list(range(1, 51))


def test_transaction_is_seen_whole_or_not_at_all() -> None:
    loader = ImageLoader()
    loader.replay([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    loader.end_batch(Provenance(0, 1, 0))
    assert published_by(loader) is not None

    loader.replay([BeginTransactionRecord(name="x"), *topic("orders", A)])
    loader.end_batch(Provenance(3, 1, 0))
    assert published_by(loader) is None
    loader.replay([EndTransactionRecord()])
    loader.end_batch(Provenance(4, 1, 0))
    published = published_by(loader)

    assert published is not None
    assert list(published[1].topics.by_name) == ["orders"]
    assert published[1].provenance.last_offset == 4


def test_aborted_transaction_leaves_no_trace() -> None:
    loader = ImageLoader()
    loader.replay([BeginTransactionRecord(name="x"), *topic("orders", A)])
    loader.end_batch(Provenance(2, 1, 0))
    assert loader.is_in_transaction

    loader.replay([AbortTransactionRecord(reason="failover"), *topic("events", B)])
    loader.end_batch(Provenance(5, 1, 0))
    published = published_by(loader)

    assert published is not None
    assert list(published[1].topics.by_name) == ["events"]
