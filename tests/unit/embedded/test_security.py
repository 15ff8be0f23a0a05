"""Broker(tls=True, users={...}): clients get in with what client_config says, and with nothing else."""

import socket
import ssl
from pathlib import Path
from random import SystemRandom

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy import Broker, Cluster
from kafkapy.config.checks import STANDARD_AUTHORIZER
from kafkapy.embedded.security import BROKER_NAME, EmbeddedSecurity
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.security.jaas import option_text
from tests.support.logins import log_in, sasl_client
from tests.support.wire import WireClient

PASSWORD = 's3cret=, ;"\\'


def copy_a_record(config: dict[str, str]) -> bytes | None:
    producer = Producer(config)
    producer.produce("orders", b"one", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return message.value()


@pytest.mark.parametrize(
    ("tls", "users", "protocol"),
    [
        (True, None, "SSL"),
        (False, {"alice": PASSWORD}, "SASL_PLAINTEXT"),
        (True, {"alice": PASSWORD, "bob_2-x": "b"}, "SASL_SSL"),
    ],
)
def test_clients_get_in_with_what_client_config_says(tls: bool, users: dict[str, str] | None, protocol: str):
    with Broker(tls=tls, users=users) as broker:
        assert broker.client_config("alice" if users else None)["security.protocol"] == protocol
        for user in users or [None]:
            assert copy_a_record(broker.client_config(user)) == b"one"


def test_users_make_delegation_tokens():
    with Broker(users={"alice": PASSWORD}) as broker, WireClient(broker.bootstrap_servers) as client:
        assert log_in(client, sasl_client("PLAIN", "alice", PASSWORD)).error_code == 0
        token = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert (token.error_code, token.principal_name) == (0, "alice")


def test_others_do_not(caplog: pytest.LogCaptureFixture):
    with Broker(tls=True, users={"alice": PASSWORD}) as broker, Broker(tls=True) as other:
        config = broker.client_config("alice")
        assert other.ca_pem is not None
        for wrong in ({"sasl.password": "x"}, {"ssl.ca.pem": other.ca_pem}, {"security.protocol": "SASL_PLAINTEXT"}):
            with pytest.raises(KafkaException):
                AdminClient({**config, **wrong, "log_level": 0}).list_topics(timeout=1)
        with pytest.raises(ValueError, match="there is no user 'bob', only alice"):
            broker.client_config("bob")
        with pytest.raises(ValueError, match="has no users"):
            other.client_config("alice")


def test_a_user_with_the_name_of_the_brokers_login_is_no_super_user():
    with Broker(users={BROKER_NAME: PASSWORD}, acls=[], properties={"super.users": "User:root"}) as broker:
        admin = AdminClient({**broker.client_config(BROKER_NAME), "log_level": 0})
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_nor_is_one_that_the_data_has_kept(tmp_path: Path):
    """SCRAM users outlive the broker that made them."""
    with Broker(tmp_path, users={BROKER_NAME: PASSWORD}):
        pass
    with Broker(tmp_path, users={"alice": PASSWORD}, acls=[]) as broker:
        config = {**broker.client_config("alice", "SCRAM-SHA-256"), "sasl.username": BROKER_NAME, "log_level": 0}
        admin = AdminClient(config)
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_brokers_login_is_a_super_user_of_an_authorizer_in_the_properties_too():
    given = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice"}
    found = EmbeddedSecurity(tls=False, users={"alice": PASSWORD}).properties(0, given)
    own, others = found["super.users"].split(";")
    assert (
        f" username={option_text(own.removeprefix('User:'))} "
        in found["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    )
    assert others == "User:alice"


@pytest.mark.parametrize("users", [None, {"ANONYMOUS": PASSWORD}])
def test_acls_of_a_cluster_need_users_that_its_nodes_are_not(users: dict[str, str] | None):
    """Nodes reach each other without a login, and may do everything: so might clients that are ANONYMOUS, too."""
    with pytest.raises(ValueError, match="ANONYMOUS"):
        EmbeddedSecurity(tls=True, users=users, acls=[]).properties_of_nodes({})


def test_super_users_that_are_named_stay_so():
    with Broker(users={"root": PASSWORD}, acls=[], properties={"super.users": "User:root"}) as broker:
        admin = AdminClient(broker.client_config("root"))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)


def test_a_broker_without_either_is_as_before():
    with Broker() as broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap_servers}
        assert broker.ca_pem is None


def test_a_name_that_jaas_cannot_carry_is_refused():
    with pytest.raises(ValueError, match="letters, digits"):
        Broker(users={"a b": "x"})


def test_the_fixture_serves_tls_to_whoever_trusts_its_certificate(secure_kafka_broker: Broker):
    host, _, port = secure_kafka_broker.bootstrap_servers.rpartition(":")
    context = ssl.create_default_context(cadata=secure_kafka_broker.ca_pem)
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        assert secured.version() == "TLSv1.3"
    assert copy_a_record(secure_kafka_broker.client_config("alice")) == b"one"


def test_a_cluster_is_ready_once_each_node_knows_its_users_and_acls() -> None:
    """The node that wrote them is not the only one that clients ask."""
    later = [
        EmbeddedSecurity(tls=False, users={"alice": PASSWORD, "bob": PASSWORD}),
        EmbeddedSecurity(tls=False, users={"alice": PASSWORD}, acls=["allow alice read topic:x"]),
    ]
    with Cluster(1, in_process=True, users={"alice": PASSWORD}, acls=[]) as cluster:
        observer = cluster._observer
        for security in later:
            assert not security.is_known_to(observer.ask())
            security.apply_to_cluster(observer.ask(), SystemRandom())
            observer.wait_for_each(security.is_known_to, "unknown")
