"""What heartbeats read of the configuration: it is kept until a configuration changes, which takes effect then."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.config.share import ShareConfig
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.settings import GroupSettings
from kafkapy.group.share.group import ShareGroup
from kafkapy.metadata.image import ConfigsImage
from tests.support.consumer_groups import image_of
from tests.support.share_groups import ShareWorld


def test_times_are_read_once_for_each_configuration() -> None:
    broker = [ShareConfig()]
    own: dict[str, str] = {}
    reads: list[str] = []

    def group_configs(group_id: str) -> Mapping[str, str]:
        reads.append(group_id)
        return own

    settings = GroupSettings(GroupCoordinatorConfig, group_configs, lambda: broker[0])
    group = ShareGroup("g", settings, lambda: 0, MetadataHashes())
    configs = ConfigsImage()
    assert group.times(configs) is group.times(configs)
    assert reads == ["g"]
    own["share.heartbeat.interval.ms"] = "7000"
    assert group.times(ConfigsImage()).heartbeat_interval_ms == 7000
    broker[0] = replace(broker[0], group_share_session_timeout_ms=50_000)
    assert group.times(configs).session_timeout_ms == 50_000
    assert len(reads) == 3


@pytest.mark.parametrize(
    ("own", "heartbeat_ms", "session_ms"),
    [
        ({"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "10000"}, 10_000, 50_000),
        ({"share.session.timeout.ms": "70000", "share.heartbeat.interval.ms": "1"}, 5_000, 60_000),
    ],
    ids=("within", "out-of-bounds"),
)
def test_a_groups_own_times_take_effect_within_the_brokers_bounds(
    own: dict[str, str], heartbeat_ms: int, session_ms: int
) -> None:
    """As in Apache Kafka's GroupMetadataManagerTest."""
    world = ShareWorld(image_of(foo=6))
    assert world.join("m", "foo").heartbeat_interval_ms == 5_000
    world.groups_world.group_configs["g"] = own
    world.groups_world.share_config = replace(world.groups_world.share_config)  # settings are read anew
    assert world.heartbeat("m", 2).heartbeat_interval_ms == heartbeat_ms
    assert world.pass_time(session_ms - 1) == []
    assert world.pass_time(1) != []
    assert world.group().is_empty
