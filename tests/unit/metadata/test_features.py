"""Feature levels: all of 4.4.0 may stand in the log, clients are told of those that work, records follow the level."""

import pytest

from kafkapy.config.releases import RELEASES
from kafkapy.metadata import features
from kafkapy.metadata.bootstrap import decide_activation, default_bootstrap_records
from kafkapy.metadata.features import KNOWN_FEATURES, FeatureControl, record_version, shown_features, unserved_levels
from kafkapy.metadata.image import FeaturesImage, MetadataImage
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord

ALL_LEVELS = {record.name: record.feature_level for record in default_bootstrap_records()}


def names(records: list[object]) -> list[str]:
    return [type(record).__name__ for record in records]


def test_all_levels_that_kafka_knows_are_shown() -> None:
    image = MetadataImage(features=FeaturesImage(ALL_LEVELS))

    shown = shown_features(image, kraft_version=1)

    assert shown.finalized == {
        "metadata.version": 33,
        "kraft.version": 1,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
        "share.version": 2,
        "streams.version": 1,
    }
    assert shown.hidden == {}


def test_levels_that_brokers_do_not_serve_are_named_with_the_highest_that_they_do() -> None:
    assert unserved_levels({**ALL_LEVELS, "kraft.version": 1}) == {}
    assert unserved_levels({"metadata.version": 34}) == {"metadata.version": (34, 33)}


def test_levels_have_the_same_names_in_the_code_as_for_operators() -> None:
    """MV_4_4_IV2 is 4.4-IV2."""
    levels = {
        name[3:].replace("_", ".", 1).replace("_", "-"): vars(features)[name]
        for name in vars(features)
        if name.startswith("MV_")
    }
    assert levels.items() <= RELEASES.items()
    assert max(levels.values()) == max(RELEASES.values())


def test_every_level_of_4_4_0_replays_and_one_beyond_does_not() -> None:
    for name, levels in KNOWN_FEATURES.items():
        control = FeatureControl()
        for level in range(levels.min_version, levels.max_version + 1):
            control.replay(FeatureLevelRecord(name=name, feature_level=level))
        with pytest.raises(AssertionError, match=name):
            control.replay(FeatureLevelRecord(name=name, feature_level=levels.max_version + 1))


@pytest.mark.parametrize(
    ("record", "metadata_version", "version"),
    [
        (PartitionRecord(), 16, 0),
        (PartitionRecord(), 17, 1),
        (PartitionRecord(), 23, 2),
        (RegisterBrokerRecord(), 7, 1),
        (RegisterBrokerRecord(), 8, 2),
        (RegisterBrokerRecord(), 17, 3),
        (RegisterBrokerRecord(), 30, 4),
        (BrokerRegistrationChangeRecord(fenced=1), 30, 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 30, 1),
        (BrokerRegistrationChangeRecord(log_dirs=[bytes(16)]), 30, 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 30, 3),
        (ConfigRecord(), 30, 0),
    ],
)
def test_records_follow_the_metadata_version(record: object, metadata_version: int, version: int) -> None:
    assert record_version(record, metadata_version) == version


def test_empty_log_gets_the_bootstrap_records_in_one_transaction() -> None:
    decision = decide_activation(default_bootstrap_records(), is_log_empty=True, is_in_transaction=False)

    assert names(decision.records) == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * 6,
        "ConfigRecord",
        "EndTransactionRecord",
    ]
    assert (decision.records[1].name, decision.records[7].name) == ("metadata.version", "min.insync.replicas")


def test_old_metadata_versions_get_them_as_one_batch() -> None:
    bootstrap = [FeatureLevelRecord(name="metadata.version", feature_level=12)]

    decision = decide_activation(bootstrap, is_log_empty=True, is_in_transaction=False)

    assert names(decision.records) == ["FeatureLevelRecord"]
    assert decision.is_atomic


def test_broken_transaction_is_aborted_first() -> None:
    empty = decide_activation(default_bootstrap_records(), is_log_empty=True, is_in_transaction=True)
    full = decide_activation([], is_log_empty=False, is_in_transaction=True)

    assert names(empty.records)[:2] == ["AbortTransactionRecord", "BeginTransactionRecord"]
    assert names(full.records) == ["AbortTransactionRecord"]
