"""Administration fails for clients as if a broker refused it: also where a response has an error for each item."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka.errors import KafkaStorageError, NoError, PolicyViolationError
from kafka.protocol.admin import AlterClientQuotasRequest

from kafkapy.testing import Broker

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topics("orders", "other", partitions=2)
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def test_credentials_of_each_user_fail_in_librdkafka(broker: Broker) -> None:
    fault = broker.faults.fail("AlterUserScramCredentials", "UNACCEPTABLE_CREDENTIAL", times=1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alterations = [
        UserScramCredentialUpsertion("alice", info, b"secret"),
        UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512),
        UserScramCredentialUpsertion("bob", info, b"secret"),
    ]
    for future in admin.alter_user_scram_credentials(alterations).values():
        with pytest.raises(KafkaException, match="UNACCEPTABLE_CREDENTIAL"):
            future.result(TIMEOUT_S)
    assert fault.hits == 1
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}, "nothing was done"
    admin.alter_user_scram_credentials(alterations[2:])["bob"].result(TIMEOUT_S)


def test_credentials_fail_in_kafka_python(broker: Broker, admin: KafkaAdminClient) -> None:
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    broker.faults.fail("AlterUserScramCredentials", "UNSUPPORTED_SASL_MECHANISM", times=1)
    carol = UserScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, "secret")
    assert admin.alter_user_scram_credentials([carol])["carol"], "it shows an error by its message alone"
    assert admin.alter_user_scram_credentials([carol]) == {"carol": None}


def test_quotas_of_each_entity_fail_in_kafka_python(broker: Broker, admin: KafkaAdminClient) -> None:
    """It has the messages, and no call of its own for them yet."""
    broker.faults.fail("AlterClientQuotas", "POLICY_VIOLATION", times=1)
    entities = [[("user", "alice"), ("client-id", None)], [("ip", "127.0.0.1")]]
    request = AlterClientQuotasRequest(
        entries=[(entity, [("connection_creation_rate", 5.0, False)]) for entity in entities[1:]]
        + [(entity, [("request_percentage", 50.0, False)]) for entity in entities[:1]],
        validate_only=False,
    )
    response = admin._manager.run(admin._manager.send, request)
    found = [
        ([(part.entity_type, part.entity_name) for part in each.entity], each.error_code) for each in response.entries
    ]
    assert found == [(entities[1], PolicyViolationError.errno), (entities[0], PolicyViolationError.errno)]
    response = admin._manager.run(admin._manager.send, request)
    assert [each.error_code for each in response.entries] == [0, 0]


def test_a_replica_that_shall_move_fails_alone(broker: Broker, admin: KafkaAdminClient) -> None:
    fault = broker.faults.fail("AlterReplicaLogDirs", "KAFKA_STORAGE_ERROR", topic="orders", partition=1, times=1)
    (node,) = (each["broker"] for each in admin.describe_log_dirs())
    ((directory,),) = (
        [each["log_dir"] for each in broker_dirs["log_dirs"]] for broker_dirs in admin.describe_log_dirs()
    )
    moves = {(topic, partition, node): directory for topic in ("orders", "other") for partition in (0, 1)}
    found = admin.alter_replica_log_dirs(moves)
    failed = {(each.topic, each.partition) for each, error in found.items() if error is KafkaStorageError}
    assert failed == {("orders", 1)}
    assert set(found.values()) == {KafkaStorageError, NoError}
    assert [hit.parts for hit in broker.faults.log if hit.api == "AlterReplicaLogDirs"] == [("orders-1",)]
    assert fault.hits == 1
