"""Which configurations of SASL work, and why others stop the start. No message shows a password."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kafkapy import Broker
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.security.sasl import VisibleSaslError
from kafkapy.server.login.authentication import Logins, server_options
from kafkapy.server.process.system_clock import SystemRandom
from tests.support.bearer_tokens import ImmediatePool
from tests.support.logins import MODULES, PLAIN_MODULE, SCRAM_MODULE

SCRAM_KEY = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LISTENER = "SASL_PLAINTEXT"
TWO_LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}


def config_of(**overrides: str):
    keys = {"sasl.enabled.mechanisms": "PLAIN", **overrides}
    keys = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", **keys}
    return load(embedded_properties("/nowhere", overrides=keys))[0]


def logins(config, cluster_id: str = "c") -> Logins:
    return Logins(
        config,
        config.broker_listeners,
        image=lambda: EMPTY_IMAGE,
        random=SystemRandom(),
        io_pool=ImmediatePool(),
        cluster_id=cluster_id,
    )


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "GSSAPI, which Apache Kafka enables unless the key is set, is not built",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5", KEY: f"{PLAIN_MODULE};"}, "no such mechanism is known"),
        ({}, "Could not find a 'KafkaServer' or 'sasl_plaintext.KafkaServer' entry"),
        ({"plain.sasl.jaas.config": f"{PLAIN_MODULE};"}, "Could not find a 'KafkaServer'"),
        ({KEY: f"{SCRAM_MODULE};"}, "the login module for PLAIN must be"),
        (
            {KEY: "com.sun.security.auth.module.JndiLoginModule required s3cret=x;"},
            "the login module for PLAIN must be",
        ),
        ({KEY: f'{PLAIN_MODULE} user_alice="s3cret"'}, "not terminated by semi-colon"),
        (
            {KEY: f"{PLAIN_MODULE};", "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "a.B"},
            "no class of that name is known here",
        ),
        ({KEY: f"{PLAIN_MODULE};", "sasl.client.callback.handler.class": "a.B"}, "no class of that name is known here"),
        (
            {KEY: f"{PLAIN_MODULE};", "listener.name.sasl_plaintext.plain.sasl.login.class": "a.B"},
            "no class of that name is known here",
        ),
    ],
)
def test_a_configuration_that_cannot_work_stops_the_start(keys, reason) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        logins(config_of(**keys))
    assert "s3cret" not in str(error.value)


def test_a_broker_with_gssapi_alone_does_not_start() -> None:
    with pytest.raises(ConfigError, match="GSSAPI"), Broker(properties={"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}):
        pass


def test_users_come_from_the_file_that_kafka_opts_names(tmp_path, monkeypatch) -> None:
    path = tmp_path / "jaas with blanks.conf"
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g '-Djava.security.auth.login.config={path}'")
    with pytest.raises(ConfigError, match="cannot be read"):
        server_options(config_of(), LISTENER, "PLAIN")
    path.write_text(f'KafkaServer {{ {SCRAM_MODULE}; {PLAIN_MODULE} user_a="all"; }};')
    assert server_options(config_of(), LISTENER, "PLAIN") == {"user_a": "all"}
    path.write_text(f'{path.read_text()} sasl_plaintext.KafkaServer {{ {PLAIN_MODULE} user_a="own"; }};')
    assert server_options(config_of(), LISTENER, "PLAIN") == {"user_a": "own"}
    path.write_text(f'KafkaServer {{ {PLAIN_MODULE} user_a="${{pw}}"; }};')
    with pytest.raises(ConfigError, match="KAFKA_OPTS does not set it"):
        server_options(config_of(), LISTENER, "PLAIN")
    monkeypatch.setenv("KAFKA_OPTS", f"'-Djava.security.auth.login.config={path}' -Dpw=property")
    assert server_options(config_of(), LISTENER, "PLAIN") == {"user_a": "property"}
    own = config_of(**{KEY: f'{PLAIN_MODULE} user_a="key";'})
    assert server_options(own, LISTENER, "PLAIN") == {"user_a": "key"}


def test_a_change_at_run_time_that_cannot_work_is_refused() -> None:
    with Broker(properties={"sasl.enabled.mechanisms": "PLAIN", KEY: f"{PLAIN_MODULE};", **TWO_LISTENERS}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for value in ("s3cret", f"{SCRAM_MODULE};"):
            entry = ConfigEntry(KEY, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.node_id), incremental_configs=[entry])
            (altered,) = admin.incremental_alter_configs([resource]).values()
            with pytest.raises(KafkaException) as error:
                altered.result(60)
            assert error.value.args[0].code() == KafkaError.INVALID_REQUEST
            assert "s3cret" not in str(error.value)


def test_users_may_change_at_run_time() -> None:
    config = config_of(**{KEY: f'{PLAIN_MODULE} user_alice="old";'})
    made = logins(config)
    made.update(config_of(**{KEY: f'{PLAIN_MODULE} user_alice="new";'}))
    (server,) = made.settings(LISTENER).servers.values()
    with pytest.raises(VisibleSaslError):
        server().evaluate(b"\0alice\0old", 0)
    assert server().evaluate(b"\0alice\0new", 0) == b""
    made.update(config_of(**{KEY: f"{MODULES}.None required;"}))
    assert made.settings(LISTENER).mechanisms == ["PLAIN"]


def test_an_unknown_user_has_the_same_salt_at_every_node_and_after_a_restart() -> None:
    """Else it would tell that there is no such user. Clusters differ, and keys for tokens."""

    def salt(name: str = "nobody", cluster_id: str = "c", **keys: str) -> str:
        mechanism = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", SCRAM_KEY: f"{SCRAM_MODULE};"}
        made = logins(config_of(**mechanism, **keys), cluster_id)
        server = made.settings(LISTENER).servers["SCRAM-SHA-256"]()
        return server.evaluate(f"n,,n={name},r=abc".encode(), 0).decode().split(",")[1]

    token_key = {"delegation.token.secret.key": "key"}
    assert salt() == salt()
    assert salt(**token_key) == salt(**token_key)
    assert len({salt(), salt("another"), salt(cluster_id="d"), salt(**token_key)}) == 4


def test_only_login_modules_that_an_operator_allows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    module = PLAIN_MODULE.partition(" ")[0]
    config = config_of(**{KEY: f"{PLAIN_MODULE};"})
    monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.allowed.login.modules=a.B, {module}".replace(", ", ","))
    assert logins(config).settings(LISTENER).mechanisms == ["PLAIN"]
    for allowed in ("a.B", "", SCRAM_MODULE.partition(" ")[0]):
        monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.allowed.login.modules={allowed}")
        with pytest.raises(ConfigError, match="PlainLoginModule is not allowed"):
            logins(config)
