"""A group's own configs and the broker's: which counts, within which bounds."""

from dataclasses import replace

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.group.settings import GroupSettings


def test_groups_own_value_counts_within_the_brokers_bounds_as_they_are_now() -> None:
    config = GroupCoordinatorConfig()
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "14000"}
    settings = GroupSettings(lambda: config, lambda group_id: own if group_id == "g" else {})
    assert settings.consumer_times_ms("g") == (50_000, 14_000)
    assert settings.consumer_times_ms("other") == (45_000, 5_000)
    assert settings.consumer_session_timeout_ms("other") == 45_000

    config = replace(config, group_consumer_min_session_timeout_ms=55_000)
    config = replace(config, group_consumer_max_heartbeat_interval_ms=9_000)

    assert settings.consumer_times_ms("g") == (55_000, 9_000)


def test_brokers_value_is_taken_as_it_is() -> None:
    config = GroupCoordinatorConfig(group_consumer_assignment_interval_ms=20_000)
    own: dict[str, str] = {}
    settings = GroupSettings(lambda: config, lambda group_id: own)

    assert settings.consumer_assignment_interval_ms("g") == 20_000

    own["consumer.assignment.interval.ms"] = "7"
    assert settings.consumer_assignment_interval_ms("g") == 7
