"""The settings of a share group's partitions: of the broker, of the group, within the broker's bounds."""

import pytest

from kafkapy.config.share import ShareConfig
from kafkapy.config.validators import duration_ms
from kafkapy.share.group_settings import group_share_settings
from kafkapy.share.partition_settings import PartitionSettings


def test_without_keys_of_its_own() -> None:
    settings = group_share_settings(ShareConfig(), {}, 1)
    assert settings.partition == PartitionSettings(5, 2000, 30_000, is_renew_enabled=True, has_dead_letters=False)
    assert (settings.offset_reset, settings.reads_committed) == ("latest", False)


def test_own_keys_within_the_bounds_of_the_broker() -> None:
    own = {
        "share.delivery.count.limit": "25",
        "share.partition.max.record.locks": "150",
        "share.record.lock.duration.ms": "1000",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1H",
        "errors.deadletterqueue.topic.name": "dead",
    }
    settings = group_share_settings(ShareConfig(), own, 2)
    assert settings.partition == PartitionSettings(10, 150, 15_000, is_renew_enabled=False, has_dead_letters=True)
    assert (settings.offset_reset, settings.reset_duration_ms, settings.reads_committed) == (
        "by_duration",
        3_600_000,
        True,
    )
    assert not group_share_settings(ShareConfig(), own, 1).partition.has_dead_letters


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("PT-6H+3M", -21_420_000), ("-PT1S", -1000), ("pt0.0015s", 1)],
)
def test_durations_are_java_s(text: str, expected: int) -> None:
    assert duration_ms(text) == expected
