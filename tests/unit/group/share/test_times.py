"""What heartbeats read of the configuration is kept until a configuration changes."""

from collections.abc import Mapping
from dataclasses import replace

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.config.share import ShareConfig
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.settings import GroupSettings
from kafkapy.group.share.group import ShareGroup
from kafkapy.metadata.image import ConfigsImage


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
