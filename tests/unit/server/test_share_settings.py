"""The settings of share groups that a broker keeps."""

from types import SimpleNamespace
from typing import Any

from kafkapy.config.load import load
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.server.share_reads import MAX_KEPT_SETTINGS, ShareSettings
from tests.support.metadata_services import PROPERTIES


def test_a_client_that_names_ever_new_groups_takes_no_more_memory() -> None:
    config, _ = load({**PROPERTIES, "log.dirs": "/data"})
    dynamic_config: Any = SimpleNamespace(current=config)
    settings = ShareSettings(dynamic_config, lambda: EMPTY_IMAGE)
    first = settings.of("first")
    assert settings.of("first") is first
    for number in range(2 * MAX_KEPT_SETTINGS):
        settings.of(f"group-{number}")
    assert len(settings._settings) <= MAX_KEPT_SETTINGS
    assert settings.of("first") == first
