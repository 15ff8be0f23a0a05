"""Dead letters that the brokers' principal may not write, or create a topic for: Apache Kafka 4.4.0 and kafkapy.

Both ask the authorizer, also about what they lead themselves: the record is archived without a letter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, Producer, ShareConsumer
from confluent_kafka.admin import AclBinding, AclOperation, AdminClient, NewTopic, ResourceType

from harness.servers import Kafkapy
from kafkapy import Broker
from tests.compat.test_acls import DENY, EVERY, OPEN_AT_FIRST, binding
from tests.compat.test_dead_letter_failures import SECONDS, Jobs, LoggedCluster, Outcome
from tests.compat.test_dead_letters import ENABLED, NAME, PROPERTIES, Cluster
from tests.compat.test_share_groups import begin_with_the_first
from tests.support.logins import PLAIN_MODULE
from tests.support.quick_kafka import QuickKafka

pytestmark = [pytest.mark.ours, pytest.mark.long]  # it starts both brokers itself

ANONYMOUS = "User:ANONYMOUS"
"""The brokers' principal by a PLAINTEXT listener, and that of the test's clients."""
KEPT = (AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION)
"""What is still allowed of the cluster, which has an ACL then."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, LoggedCluster]]:
    """Apache Kafka's, and ours; both create dead-letter topics."""
    directory: Path = tmp_path_factory.mktemp("forbidden")
    properties = {**PROPERTIES, **OPEN_AT_FIRST}
    with QuickKafka(directory / "apache", properties) as apache, Kafkapy(directory / "ours", properties) as ours:
        yield Cluster(apache), LoggedCluster(ours)


@contextmanager
def acls(cluster: Cluster, *bindings: AclBinding) -> Iterator[None]:
    """Have ACLs for a while."""
    for created in cluster.admin.create_acls(list(bindings)).values():
        created.result(SECONDS)
    yield
    for deleted in cluster.admin.delete_acls([EVERY]).values():
        assert deleted.result(SECONDS)


def reject_one_under(cluster: Cluster, jobs: Jobs, *bindings: AclBinding) -> Outcome:
    """Reject a job while there are ACLs, and return what came of it."""
    with acls(cluster, *bindings):
        jobs.do(0, is_rejected=True)
        jobs.do(1, is_rejected=False)
        jobs.wait_until_done()
    return jobs.outcome()


def reason_in(cluster: LoggedCluster, group: str) -> str:
    """Return the only line that ours has logged about the group."""
    (line,) = cluster.lines_of(group)
    assert "Offsets 0 to 0 of" in line
    assert "are archived without a dead letter" in line
    return line


def test_a_topic_that_the_broker_may_not_write_gets_no_letter(clusters: tuple[Cluster, LoggedCluster]) -> None:
    outcomes = []
    for cluster in clusters:
        cluster.create("dlq.write", 1, **ENABLED)
        jobs = Jobs(cluster, "write", "dlq.write")
        no_write = binding(ResourceType.TOPIC, "dlq.write", ANONYMOUS, AclOperation.WRITE, permission=DENY)
        outcomes.append(reject_one_under(cluster, jobs, no_write))
    assert outcomes[0] == outcomes[1]
    assert outcomes[1] == ([0, 1], 0, 0)
    assert "TOPIC_AUTHORIZATION_FAILED from broker 1, dlq.write" in reason_in(clusters[1], "group-write")


def test_a_topic_that_the_broker_may_not_create_is_not_created(clusters: tuple[Cluster, LoggedCluster]) -> None:
    outcomes = []
    for cluster in clusters:
        jobs = Jobs(cluster, "create", "dlq.create")
        of_cluster = (ResourceType.BROKER, "kafka-cluster", ANONYMOUS)
        no_create = [
            binding(ResourceType.TOPIC, "dlq.create", ANONYMOUS, AclOperation.CREATE, permission=DENY),
            binding(*of_cluster, AclOperation.CREATE, permission=DENY),
        ]
        kept = [binding(*of_cluster, operation) for operation in KEPT]
        outcomes.append(reject_one_under(cluster, jobs, *no_create, *kept))
    assert outcomes[0] == outcomes[1]
    assert outcomes[1] == ([0, 1], 0, None)
    assert "creating dlq.create: TOPIC_AUTHORIZATION_FAILED" in reason_in(clusters[1], "group-create")


def test_what_is_allowed_is_created_and_written(clusters: tuple[Cluster, LoggedCluster]) -> None:
    """Apache Kafka often writes a letter twice if another member comes while its topic is created: one comes later."""
    letters = []
    for cluster in clusters:
        jobs = Jobs(cluster, "allowed", "dlq.allowed")
        jobs.do(0, is_rejected=True)
        letters.append(cluster.read("dlq.allowed", 1))
        jobs.do(1, is_rejected=False)
        assert jobs.outcome() == ([0, 1], 0, len(letters[-1]))
    assert letters[0] == letters[1]
    assert clusters[1].lines_of("group-allowed") == []


def rejected(config: dict[str, str]) -> int:
    """Reject the first record of `jobs`; return how many came."""
    settings = {**config, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["jobs"])
        for _ in range(SECONDS):
            messages = consumer.poll(1.0) or []
            for message in messages:
                consumer.acknowledge(message, AcknowledgeType.REJECT)
            if messages:
                consumer.commit_sync(30.0)
                return len(messages)
    return 0


def first_of(config: dict[str, str], topic: str) -> Message | None:
    """Return a topic's first record, once there is one."""
    consumer = Consumer({**config, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe([topic])
    for _ in range(SECONDS):
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            break
    consumer.close()
    return message


USERS = {"alice": "secret"}
ALLOWED = ["allow alice all topic:jobs", "allow alice read topic:dlq.jobs", "allow alice all group:*"]


def source_of_a_letter(broker: Broker) -> bytes | None:
    """Reject a record of `jobs`; return the topic that its dead letter names."""
    config = broker.client_config("alice")
    admin = AdminClient(config)
    begin_with_the_first(admin, "workers", **{NAME: "dlq.jobs"})
    admin.create_topics([NewTopic("jobs", 1)])["jobs"].result(SECONDS)
    producer = Producer(config)
    producer.produce("jobs", b"bad")
    assert producer.flush(SECONDS) == 0
    assert rejected(config) == 1
    letter = first_of(config, "dlq.jobs")
    assert letter is not None
    return dict(letter.headers() or [])["__dlq.errors.topic"]


def test_an_embedded_broker_may_write_letters_whatever_its_users_may() -> None:
    with Broker(tls=True, users=USERS, acls=ALLOWED, properties=PROPERTIES) as broker:
        broker.requests.on()
        assert source_of_a_letter(broker) == b"jobs"
        assert broker.requests.matching("Produce", topic="jobs")
        assert not broker.requests.matching("Produce", topic="dlq.jobs"), "its own request is no client's"
        assert not broker.requests.matching("CreateTopics", topic="dlq.jobs")


def test_a_broker_alone_that_has_no_login_writes_letters_too() -> None:
    """`kafkapy security init` makes such a broker. It has no principal whose rights the authorizer could check."""
    no_login = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="secret";'}
    with Broker(users=USERS, acls=ALLOWED, properties={**PROPERTIES, **no_login}) as broker:
        assert source_of_a_letter(broker) == b"jobs"
