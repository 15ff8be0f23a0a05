"""Properties -> BrokerConfig: types, ranges, precedence, what keys must be to each other, what is warned of."""

import pytest

from kafkapy.config.definitions import Password, broker_definitions, to_text
from kafkapy.config.endpoints import SecurityProtocol
from kafkapy.config.load import load
from kafkapy.errors import ConfigError

BROKER_ONLY = {"process.roles": "broker", "listeners": "PLAINTEXT://h:9092"}
CONTROLLER_MAP = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
CONTROLLERS_WITH_LOGINS = {
    "controller.quorum.voters": "1@h:1,2@h:2,3@h:3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
}
CONTROLLER_ONLY = {"process.roles": "controller", "listeners": "CONTROLLER://h:9093"}


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(properties)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("num.partitions", " 7 ", 7),
        ("num.partitions", "+7", 7),
        ("log.retention.bytes", "-9223372036854775808", -(1 << 63)),
        ("offsets.topic.replication.factor", "32767", 32767),
        ("log.cleaner.min.cleanable.ratio", ".25", 0.25),
        ("log.cleaner.min.cleanable.ratio", "1e-1", 0.1),
        ("log.cleaner.io.max.bytes.per.second", "5d", 5.0),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.cleanup.policy", "delete,delete", ("delete",)),
        ("broker.rack", " r1 ", "r1"),
        ("ssl.key.password", " s ", Password("s")),
        ("sasl.login.class", "a.B", "a.B"),
    ],
)
def test_values_are_typed(minimal, key, text, value) -> None:
    config, _ = load({**minimal, key: text})
    assert config.value(key) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("num.partitions", "abc", "Invalid value abc for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("num.partitions", "1_000", "Not a number of type INT"),
        ("num.partitions", "1.0", "Not a number of type INT"),
        ("num.partitions", "", "Not a number of type INT"),
        ("num.partitions", "9" * 5000, "Not a number of type INT"),
        ("num.partitions", "0", "Value must be at least 1"),
        ("offsets.topic.replication.factor", "32768", "Not a number of type SHORT"),
        ("log.retention.bytes", "9223372036854775808", "Not a number of type LONG"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "x", "Not a number of type DOUBLE"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("compression.type", "zip", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("log.cleanup.policy", "compact,keep", "Invalid value keep for configuration log.cleanup.policy"),
        ("log.cleanup.policy", "compact,,delete", "Configuration 'log.cleanup.policy' values must not be empty."),
        ("process.roles", "", "Configuration 'process.roles' must not be empty. Valid values include: [broker, "),
        ("process.roles", "broker,zookeeper", "String must be one of: broker, controller"),
        ("group.consumer.migration.policy", "up", "String must be one of (case insensitive): DISABLED"),
        ("remote.log.storage.manager.class.name", "", "String must be non-empty"),
        ("controller.quorum.voters", "1@h", "Each entry should be in the form `{id}@{host}:{port}`."),
        ("controller.quorum.voters", "h:1", "Each entry should be in the form `{id}@{host}:{port}`."),
        ("controller.quorum.voters", "x@h:1", "Failed to parse voter ID as an integer from x"),
        ("controller.quorum.bootstrap.servers", "nohost", "Failed to parse host name from nohost"),
    ],
)
def test_bad_values_are_refused_with_kafkas_words(minimal, key, text, message) -> None:
    refused = refusal({**minimal, key: text})
    assert message in refused
    assert key in refused


@pytest.mark.parametrize("key", ["process.roles", "node.id", "controller.listener.names"])
def test_required_keys(minimal, key) -> None:
    del minimal[key]
    assert refusal(minimal) == f'Missing required configuration "{key}" which has no default value.'


def test_of_several_wrong_keys_the_error_names_the_same_whatever_their_order(minimal) -> None:
    wrong = {"num.partitions": "x", "log.segment.bytes": "y", "background.threads": "z"}
    refused = refusal({**minimal, **wrong})
    assert refused == "Invalid value z for configuration background.threads: Not a number of type INT"
    assert refusal({**minimal, **dict(reversed(wrong.items()))}) == refused
    assert refusal({}) == 'Missing required configuration "controller.listener.names" which has no default value.'


def test_unknown_keys_are_warned_of_by_name(minimal) -> None:
    _, warnings = load({**minimal, "zookeeper.connect": "h:2181", "num.partition": "3"})
    assert warnings == [
        "Unknown configuration key zookeeper.connect is ignored",
        "Unknown configuration key num.partition is ignored (did you mean num.partitions?)",
    ]


def test_prefixed_and_plugin_keys_are_known(minimal) -> None:
    settings = {
        "listener.name.plaintext.max.connections": "5",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": "x",
        "config.providers.file.class": "x",
        "rsm.config.bucket": "x",
        "super.users": "User:a;User:b",
        "allow.everyone.if.no.acl.found": "true",
    }
    config, warnings = load({**minimal, **settings})
    assert warnings == []
    assert config.listener_value("PLAINTEXT", "max.connections") == 5
    assert config.listener_value("OTHER", "max.connections") == 2147483647
    assert config.listener_value("PLAINTEXT", "sasl.jaas.config", mechanism="SCRAM-SHA-256") == Password("x")
    assert config.listener_value("PLAINTEXT", "sasl.jaas.config", mechanism="PLAIN") is None


def test_prefixed_values_are_checked_and_unknown_ones_warned_of(minimal) -> None:
    assert "Not a number" in refusal({**minimal, "listener.name.plaintext.max.connections": "many"})
    assert "Not a number" in refusal({**minimal, "listener.name.controller.max.connections": "many"})
    _, warnings = load({**minimal, "listener.name.x.max.connections": "many"})
    assert "is ignored, as this node has no listener X: " in warnings[0]
    _, warnings = load({**minimal, "listener.name.x.no.such.key": "1"})
    assert len(warnings) == 1


def test_secrets_are_not_printed(minimal) -> None:
    settings = {"ssl.key.password": "geheim", "listener.name.plaintext.ssl.key.password": "geheim", "my.key": "geheim"}
    config, _ = load({**minimal, **settings})
    assert "geheim" not in repr(config)
    assert "geheim" not in repr(config.tls)
    password = config.tls.ssl_key_password
    assert password is not None
    assert password.value == "geheim"


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 168 * 3600_000),
        ({"log.retention.hours": "2"}, 7200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_is_given_in_ms_minutes_or_hours(minimal, settings, retention_ms) -> None:
    assert load({**minimal, **settings})[0].log_config.retention_ms == retention_ms


def test_roll_and_flush_have_their_precedence(minimal) -> None:
    settings = {"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "9"}
    log = load({**minimal, **settings})[0].log_config
    assert (log.segment_ms, log.segment_jitter_ms, log.flush_ms) == (3600_000, 7200_000, 9)
    settings |= {"log.roll.ms": "5", "log.roll.jitter.ms": "6", "log.flush.interval.ms": "7"}
    log = load({**minimal, **settings})[0].log_config
    assert (log.segment_ms, log.segment_jitter_ms, log.flush_ms) == (5, 6, 7)


def test_log_dirs_win_over_log_dir(minimal) -> None:
    assert load(minimal)[0].log_dirs == ("/tmp/kafka-logs",)
    config, _ = load({**minimal, "log.dir": "/a", "log.dirs": "/b, /c"})
    assert (config.log_dirs, config.metadata_log_dir) == (("/b", "/c"), "/b")
    assert load({**minimal, "metadata.log.dir": "/m"})[0].metadata_log_dir == "/m"


def test_broker_id_and_node_id_stand_for_each_other(minimal) -> None:
    del minimal["node.id"]
    assert load({**minimal, "broker.id": "4"})[0].node_id == 4
    assert "same value" in refusal({**minimal, "broker.id": "4", "node.id": "5"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater"),
        ({"log.cleaner.threads": "0"}, "at least 1MB per cleaner thread"),
        ({"log.cleaner.threads": "200"}, "at least 1MB per cleaner thread"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms should always be"),
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
            "less than or equal to replica.lag.time.max.ms",
        ),
        ({"controller.quorum.bootstrap.servers": ""}, "must contain the set of bootstrap controllers or"),
        ({"controller.quorum.voters": "2@h:1"}, "the node id 1 must be included in the set of voters"),
        (
            {"controller.listener.names": "OTHER", **CONTROLLER_MAP},
            "must contain at least one value appearing in the 'listeners'",
        ),
        ({"controller.listener.names": "CONTROLLER,X"}, "must only contain values appearing in the 'listeners'"),
        ({"listeners": "CONTROLLER://h:1"}, "There must be at least one broker advertised listener."),
        ({"inter.broker.listener.name": "X"}, "Listener with name X defined in inter.broker.listener.name not found"),
        ({"inter.broker.listener.name": "SSL"}, "must be a listener name defined in advertised.listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://h:1"}, "cannot use the nonroutable meta-address"),
        ({"advertised.listeners": "PLAINTEXT://h:1,SSL://h:2"}, "must be equal to or a subset of the ones defined"),
        ({"early.start.listeners": "X"}, "contains listener X, but this is not contained in"),
        ({"queued.max.request.bytes": "100"}, "queued.max.request.bytes must be larger or equal to"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if"),
        ({"max.connections.per.ip.overrides": "a b:1"}, "contains invalid addresses"),
        ({"max.connections.per.ip.overrides": "h:x"}, "is not a number of connections"),
        ({"max.connections.per.ip.overrides": "h:2147483648"}, "is not a number of connections"),
        ({"max.connections.per.ip.overrides": f"h:{'9' * 5000}"}, "is not a number of connections"),
        ({"max.connections.per.ip.overrides": "7"}, "7 is not of the form host:count"),
        ({"connections.max.idle.ms": "50"}, "should always be less than connections.max.idle.ms=50"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
        ({"group.streams.assignors": "foo"}, "sticky is the only assignor"),
        ({"group.consumer.assignors": "uniform,com.example.Racks"}, "Racks is not known here, only uniform and range"),
        ({"group.share.assignors": "com.example.SimpleAssignor"}, "SimpleAssignor is not known here, only simple"),
        ({"cordoned.log.dirs": "/nowhere"}, "Missing entries : /nowhere"),
        ({"cordoned.log.dirs": "*,/tmp/kafka-logs"}, "must not contain other values"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "No security protocol defined for listener CONTROLLER",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:SECURE"}, "Invalid security protocol `SECURE`"),
        ({"security.inter.broker.protocol": "TLS"}, "String must be one of: PLAINTEXT, SSL"),
        (
            {
                "listeners": "SASL_PLAINTEXT://h:1,CONTROLLER://h:2",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "must be included in sasl.enabled.mechanisms when SASL is used",
        ),
        (
            {**BROKER_ONLY, "controller.quorum.voters": "1@h:1"},
            "the node id 1 must not be included in the set",
        ),
        (
            {**BROKER_ONLY, "controller.listener.names": "PLAINTEXT"},
            "must not contain a value appearing in",
        ),
        (
            {**BROKER_ONLY, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "Controller listener with name CONTROLLER",
        ),
        ({**BROKER_ONLY, "controller.quorum.auto.join.enable": "true"}, "only supported when process.roles contains"),
        (
            {**CONTROLLER_ONLY, "listeners": "CONTROLLER://h:1,PLAINTEXT://h:2"},
            "The listeners config must only contain KRaft controller listeners",
        ),
        (
            {**CONTROLLER_ONLY, "inter.broker.listener.name": "CONTROLLER"},
            "must not contain an explicitly set",
        ),
        (
            {**CONTROLLERS_WITH_LOGINS, "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},
            "SCRAM credentials are in the metadata",
        ),
        (
            CONTROLLERS_WITH_LOGINS,
            "nodes log in to each other by one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER here",
        ),
    ],
)
def test_keys_must_go_together(minimal, settings, message) -> None:
    assert message in refusal({**minimal, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        BROKER_ONLY,
        CONTROLLER_ONLY,
        {"controller.quorum.voters": "1@h:1,2@h:2,3@h:3"},
        {**CONTROLLERS_WITH_LOGINS, "sasl.mechanism.controller.protocol": "PLAIN"},
        {**CONTROLLERS_WITH_LOGINS, "controller.quorum.voters": "1@h:1"},
        {
            **BROKER_ONLY,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        },
        {
            "listeners": "PLAINTEXT://h:1,SASL_SSL://h:2,CONTROLLER://h:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        },
    ],
)
def test_roles_that_go_together_are_taken(minimal, settings) -> None:
    assert load({**minimal, **settings})[1] == []


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"broker.heartbeat.interval.ms": "5000"}, "broker.heartbeat.interval.ms (5000 ms) must be"),
        ({"group.coordinator.rebalance.protocols": "classic"}, "is deprecated"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage is not supported"),
        ({**BROKER_ONLY, "controller.listener.names": "CONTROLLER,X"}, "uses the first only"),
    ],
)
def test_questionable_settings_are_warned_of(minimal, settings, word) -> None:
    _, warnings = load({**minimal, **settings})
    assert len(warnings) == 1
    assert word in warnings[0]


def test_every_default_can_be_written_out_and_read(minimal) -> None:
    """Setting a key to its own default changes nothing."""
    defaults = {
        key: each.default_text
        for key, each in broker_definitions().items()
        if each.default_text is not None and key not in minimal and key != "broker.id"
    }
    del defaults["security.inter.broker.protocol"], defaults["listener.security.protocol.map"]
    written, _ = load({**minimal, **defaults})
    plain, _ = load(minimal)
    for key in broker_definitions():
        assert to_text(written.value(key)) == to_text(plain.value(key)), key


def test_equal_properties_make_equal_configs(minimal) -> None:
    one, other = load(minimal)[0], load(dict(reversed(minimal.items())))[0]
    assert one == other
    assert hash(one) == hash(other)
    assert one != load({**minimal, "num.partitions": "2"})[0]


def test_controller_listeners_without_a_map_are_plaintext(config) -> None:
    assert config.listener_protocols["CONTROLLER"] is SecurityProtocol.PLAINTEXT
    assert [endpoint.listener for endpoint in config.broker_listeners] == ["PLAINTEXT"]
    assert [str(endpoint) for endpoint in config.controller_listeners] == ["CONTROLLER://127.0.0.1:9093"]


def test_a_secured_listener_means_that_the_map_must_be_written(minimal) -> None:
    listeners = "PLAINTEXT://h:1,SSL://h:2,CONTROLLER://h:3"
    assert "No security protocol defined for listener CONTROLLER" in refusal({**minimal, "listeners": listeners})


def test_first_controller_listener_is_advertised_where_the_voters_say(minimal) -> None:
    settings = {
        "listeners": "PLAINTEXT://h:9092,CONTROLLER://:9093",
        "controller.quorum.voters": "1@here:9093,2@there:9093",
    }
    config, _ = load({**minimal, **settings})
    assert [str(endpoint) for endpoint in config.advertised_controller_listeners] == ["CONTROLLER://here:9093"]
    assert config.quorum_voters == {1: ("here", 9093), 2: ("there", 9093)}
    assert config.quorum_bootstrap_servers == (("127.0.0.1", 9093),)
