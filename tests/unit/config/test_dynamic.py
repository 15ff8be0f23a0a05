"""Configuration at run time; what DescribeConfigs tells is in tests/unit/handlers/configs/test_config_apis.py."""

import pytest

from kafkapy.config.definitions import to_text
from kafkapy.config.dynamic import DynamicConfig, synonyms_of
from kafkapy.config.load import load
from kafkapy.config.rules import BROKER, CLIENT_METRICS, GROUP, TOPIC, DynamicConfigRules
from kafkapy.errors import ApiError, ConfigError
from kafkapy.metadata.image import ConfigResource


@pytest.fixture
def dynamic(minimal) -> DynamicConfig:
    return DynamicConfig(load({**minimal, "log.roll.hours": "5"})[0])


def test_broker_wins_over_cluster_wins_over_file(dynamic) -> None:
    assert (
        dynamic.update(cluster={"log.retention.ms": "10", "num.io.threads": "9"}, broker={"num.io.threads": "7"}) == []
    )
    assert dynamic.current.log_config.retention_ms == 10
    assert dynamic.current.node.num_io_threads == 7
    dynamic.update(cluster={}, broker={})
    assert dynamic.current == dynamic.static


def test_listeners_hear_of_changes_only(dynamic) -> None:
    heard = []
    dynamic.add_listener(lambda before, after: heard.append((before.node.num_io_threads, after.node.num_io_threads)))
    dynamic.update(cluster={"num.io.threads": "9"}, broker={})
    dynamic.update(cluster={"num.io.threads": "9"}, broker={})
    assert heard == [(8, 9)]


def test_what_is_set_at_run_time_replaces_the_same_thing_in_other_units(dynamic) -> None:
    assert dynamic.current.log_config.segment_ms == 5 * 3600_000
    dynamic.update(cluster={"log.roll.ms": "1000"}, broker={})
    assert dynamic.current.log_config.segment_ms == 1000
    assert to_text(dynamic.current.value("log.roll.hours")) == "168"
    assert synonyms_of("log.retention.minutes") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms_of("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)


def test_impossible_values_are_left_out_and_reported(dynamic) -> None:
    cluster = {"num.io.threads": "x", "num.partitions": "4", "ssl.protocol": "TLSv1.3", "log.retention.ms": "5"}
    warnings = dynamic.update(cluster=cluster, broker={})
    assert dynamic.cluster == {"log.retention.ms": "5"}
    assert [warning.split(" is ignored")[0] for warning in warnings] == [
        "Dynamic config num.io.threads",
        "Dynamic config num.partitions",
        "Dynamic config ssl.protocol",
    ]


def test_values_that_do_not_go_together_leave_all_as_it_was(dynamic) -> None:
    (warning,) = dynamic.update(cluster={"log.retention.ms": "0"}, broker={})
    assert "could not be applied" in warning
    assert dynamic.current == dynamic.static


@pytest.mark.parametrize(("count", "is_valid"), [("4", True), ("16", True), ("3", False), ("17", False), ("1", False)])
def test_thread_counts_change_by_no_more_than_a_factor_of_two(dynamic, count, is_valid) -> None:
    if is_valid:
        dynamic.validate({"num.io.threads": count}, is_per_broker=True)
    else:
        with pytest.raises(ConfigError, match="Dynamic thread count update validation failed"):
            dynamic.validate({"num.io.threads": count}, is_per_broker=True)


def test_security_protocol_of_a_bound_listener_stays(dynamic) -> None:
    change = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}
    with pytest.raises(ConfigError):
        dynamic.validate(change, is_per_broker=True)


def test_topic_configs_follow_the_broker(dynamic) -> None:
    assert dynamic.log_config({"internal.segment.bytes": "100"}).segment_bytes == 100
    dynamic.update(cluster={"log.segment.bytes": "2097152"}, broker={})
    assert dynamic.log_config({}).segment_bytes == 2097152
    assert dynamic.log_config({"segment.bytes": "1048576", "unknown.to.us": "1"}).segment_bytes == 1048576


def test_controller_finds_the_value_that_counts(dynamic) -> None:
    rules = DynamicConfigRules(dynamic)

    def effective(key, **layers):
        return rules.effective_topic_config(key, **{"cluster": {}, "node": {}, "topic": {}, **layers})

    assert effective("segment.ms") == str(5 * 3600_000)
    assert effective("segment.ms", cluster={"log.roll.ms": "7"}) == "7"
    assert effective("segment.ms", cluster={"log.roll.ms": "7"}, node={"log.roll.hours": "1"}) == "3600000"
    assert effective("segment.ms", topic={"segment.ms": "3"}, node={"log.roll.ms": "7"}) == "3"
    assert effective("retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("resource_type", "name", "configs", "code", "message"),
    [
        (TOPIC, "t", {"no.such": "1"}, 40, "Unknown topic config name: no.such"),
        (TOPIC, "", {}, 42, "Default topic resources are not allowed."),
        (TOPIC, "t", {"remote.storage.enable": "true"}, 40, "Tiered Storage functionality is disabled in the broker."),
        (BROKER, "x", {}, 42, "Unable to parse broker name"),
        (BROKER, "9" * 5000, {}, 42, "Unable to parse broker name"),
        (BROKER, "-1", {}, 42, "Invalid negative broker ID."),
        (GROUP, "", {}, 42, "Default group resources are not allowed."),
        (GROUP, "g", {"share.delivery.count.limit": "11"}, 40, "must be in the range 2 to 10 inclusive."),
        (GROUP, "g", {"streams.assignment.interval.ms": "15001"}, 40, "must be in the range 0 to 15000 inclusive."),
        (GROUP, "g", {"streams.num.standby.replicas": "3"}, 40, "must be less than or equal to 2"),
        (GROUP, "g", {"streams.num.warmup.replicas": "21"}, 40, "must be less than or equal to 20"),
        (GROUP, "g", {"streams.task.offset.interval.ms": "14999"}, 40, "must be greater than or equal to 15000"),
        (GROUP, "g", {"streams.assignor.name": "x"}, 40, "Registered assignors are: [sticky]."),
        (GROUP, "g", {"streams.rack.aware.assignment.tags": "a, b,a"}, 40, "must not contain duplicate tag keys."),
        (GROUP, "g", {"errors.deadletterqueue.topic.name": "__dlq"}, 40, "DLQ topic name must not start with '__'"),
        (CLIENT_METRICS, "", {}, 42, "Subscription name can't be empty"),
        (CLIENT_METRICS, "m", {"match": "client_id=("}, 40, "Illegal client matching pattern"),
        (CLIENT_METRICS, "m", {"match": "client_id"}, 40, "Illegal client matching pattern"),
        (CLIENT_METRICS, "m", {"match": "client_id=a=b"}, 40, "Illegal client matching pattern: client_id=a=b"),
        (CLIENT_METRICS, "m", {"match": "client_id=(?!a)b"}, 40, "Illegal client matching pattern: client_id=(?!a)b"),
        (CLIENT_METRICS, "m", {"match": "client_id=" + "(" * 100_000}, 40, "Illegal client matching pattern"),
        (CLIENT_METRICS, "m", {"match": "client_id=((a{999}){999}){999}"}, 40, "Illegal client matching pattern"),
        (
            CLIENT_METRICS,
            "m",
            {"match": ",".join(rf"client_id=\pL{n}\pN\pL" for n in range(24))},
            40,
            "more than 64 classes",
        ),
        (
            CLIENT_METRICS,
            "m",
            {"match": ",".join(f"client_id={n}" + "a" * 1_500 for n in range(24))},
            40,
            "more than 32768 characters",
        ),
        (
            CLIENT_METRICS,
            "m",
            {"match": ",".join(f"client_id={n}" for n in range(25))},
            40,
            "Illegal client matching patterns: 25",
        ),
        (CLIENT_METRICS, "m", {"interval.ms": "3600001"}, 42, "interval must be between 100 and 3600000"),
        (99, "x", {}, 42, "Unknown resource type 99"),
    ],
)
def test_controller_refuses(dynamic, resource_type, name, configs, code, message) -> None:
    with pytest.raises(ApiError) as caught:
        DynamicConfigRules(dynamic).validate(ConfigResource(resource_type, name), configs, {})
    assert caught.value.code == code
    assert message in (caught.value.message or "")


def test_remote_storage_is_not_dropped_silently(dynamic) -> None:
    rules, existing = DynamicConfigRules(dynamic), {"remote.storage.enable": "true"}
    with pytest.raises(ApiError, match="without deleting remote data"):
        rules.validate(ConfigResource(TOPIC, "t"), {}, existing)
    rules.validate(ConfigResource(TOPIC, "t"), {"remote.log.delete.on.disable": "true"}, existing)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max.connections", "0", "Invalid max.connections 0"),
        ("listener.name.plaintext.max.connections", "0", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        (
            "log.local.retention.ms",
            "604800001",
            "Value must not be more than log.retention.ms property value: 604800000",
        ),
        ("log.local.retention.ms", "-1", "Value must not be -1 as log.retention.ms value is set as 604800000."),
    ],
)
def test_a_running_broker_refuses_what_it_could_not_live_with(dynamic, key, value, message) -> None:
    with pytest.raises(ConfigError, match=message):
        dynamic.validate({key: value}, is_per_broker=True)


def test_local_retention_may_be_anything_where_all_is_kept(dynamic) -> None:
    dynamic.validate({"log.local.retention.bytes": "5"}, is_per_broker=False)
    with pytest.raises(ConfigError, match=r"more than log\.retention\.bytes property value: 4"):
        dynamic.validate({"log.local.retention.bytes": "5", "log.retention.bytes": "4"}, is_per_broker=False)


@pytest.mark.parametrize(
    "value",
    [
        "latest",
        "earliest",
        "by_duration:PT1H30M",
        "by_duration:P1DT0.5S",
        "by_duration:-PT-1H",
        f"by_duration:P{1:022}D",
    ],
)
def test_share_groups_begin_where_configured(dynamic, value) -> None:
    DynamicConfigRules(dynamic).validate(ConfigResource(GROUP, "g"), {"share.auto.offset.reset": value}, {})


@pytest.mark.parametrize(
    "value",
    [
        "never",
        "by_duration:",
        "by_duration:1h",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "by_duration:PT1H-61M",
        "by_duration:PT-0.5S",
        f"by_duration:PT{1 << 63}S",
        f"by_duration:P{'9' * 5000}D",
        "by_duration:PT\N{ARABIC-INDIC DIGIT ONE}H",
        "by_duration:PT1\N{LATIN SMALL LETTER LONG S}",
    ],
)
def test_share_groups_refuse_other_beginnings(dynamic, value) -> None:
    with pytest.raises(ApiError, match="The value must be either"):
        DynamicConfigRules(dynamic).validate(ConfigResource(GROUP, "g"), {"share.auto.offset.reset": value}, {})
