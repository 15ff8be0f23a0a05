"""Dead letters in a cluster of three whose brokers log in to each other over TLS: what their principal may not do.

The topic of the jobs is led by one node, that of the letters by another. The principal is no super user, so that ACLs
count for it, as on Apache Kafka 4.4.0 (KAFKAPY_COMPAT_SERVER=apache); one broker alone: test_dead_letters_forbidden.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from harness.nodes import ThreeNodes
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.compat.test_acls import DENY, OPEN_AT_FIRST, binding
from tests.compat.test_cluster import KIND
from tests.compat.test_dead_letter_failures import Jobs
from tests.compat.test_dead_letters import ENABLED, PROPERTIES, Cluster
from tests.compat.test_dead_letters_forbidden import ANONYMOUS, KEPT, acls
from tests.support import topics
from tests.support.certificates import Authority
from tests.support.copying import only_soaked
from tests.support.logins import PLAIN_MODULE
from tests.support.wire import WireClient

pytestmark = [pytest.mark.long, only_soaked]  # half a minute, with Apache Kafka two

NODE = "User:node"
"""The brokers' principal; that of the controllers is a super user, as those have to be."""
JOBS_LEADER, LETTERS_LEADER, FOLLOWER = 1, 2, 3


def properties(directory: Path) -> dict[str, str]:
    authority = Authority()
    keys = authority.issue("node", ["localhost", "127.0.0.1"]).write(directory, "node")
    (directory / "ca.pem").write_text(authority.certificate_pem)
    node = 'username="node" password="node-secret" user_node="node-secret"'
    controller = 'username="controller" password="secret" user_controller="secret"'
    return {
        **PROPERTIES,
        **OPEN_AT_FIRST,
        "offsets.topic.replication.factor": "3",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.brokers.plain.sasl.jaas.config": f"{PLAIN_MODULE} {node};",
        "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN_MODULE} {controller};",
        "super.users": "User:controller",
        "early.start.listeners": "CONTROLLER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }


class PlacedCluster(Cluster):
    """Its topics have leaders that the test chooses."""

    def create(self, name: str, partitions: int, **configs: str) -> None:
        leader = LETTERS_LEADER if name.startswith("dlq.") else JOBS_LEADER
        assignment = [[leader, FOLLOWER]] * partitions
        topics.create(self.bootstrap, name, partitions=partitions, config=configs, replica_assignment=assignment)


class PlacedJobs(Jobs):
    def _lag(self) -> int:
        """Return the records that are not done, as the group's coordinator tells; 1 as long as none does."""
        topic = DescribeShareGroupOffsetsRequestTopic(self._topic, partitions=[0])
        group = DescribeShareGroupOffsetsRequestGroup(self._group, topics=[topic])
        for address in self._cluster.bootstrap.split(","):
            with WireClient(address) as client:
                (described,) = client.call(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
            partitions = [each for topic in described.topics for each in topic.partitions]
            if described.error_code == 0 and [each.error_code for each in partitions] == [0]:
                return int(partitions[0].lag)
        return 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacedCluster]:
    directory = tmp_path_factory.mktemp("letters")
    settings = properties(directory)
    with ThreeNodes(KIND, directory, settings, heap="256m", more_listeners=["BROKERS"]) as running:
        yield PlacedCluster(running)


def reject_one(jobs: Jobs) -> None:
    jobs.do(0, is_rejected=True)
    jobs.do(1, is_rejected=False)
    jobs.wait_until_done()


def test_letters_go_to_another_node_and_to_topics_that_are_made(cluster: PlacedCluster) -> None:
    cluster.create("dlq.allowed", 1, **ENABLED)
    for name in ("allowed", "made"):
        jobs = PlacedJobs(cluster, name, f"dlq.{name}")
        jobs.do(0, is_rejected=True)
        ((_, _, _, headers),) = cluster.read(f"dlq.{name}", 1)
        assert ("__dlq.errors.topic", f"jobs-{name}".encode()) in headers
        jobs.do(1, is_rejected=False)
        assert jobs.outcome()[:2] == ([0, 1], 0)


def test_a_topic_that_brokers_may_not_write_gets_no_letter(cluster: PlacedCluster) -> None:
    cluster.create("dlq.write", 1, **ENABLED)
    jobs = PlacedJobs(cluster, "write", "dlq.write")
    with acls(cluster, binding(ResourceType.TOPIC, "dlq.write", NODE, AclOperation.WRITE, permission=DENY)):
        reject_one(jobs)
    assert jobs.outcome() == ([0, 1], 0, 0)


def test_a_topic_that_brokers_may_not_create_is_not_created(cluster: PlacedCluster) -> None:
    jobs = PlacedJobs(cluster, "create", "dlq.create")
    of_cluster = (ResourceType.BROKER, "kafka-cluster")
    forbidden = [
        binding(ResourceType.TOPIC, "dlq.create", NODE, AclOperation.CREATE, permission=DENY),
        binding(*of_cluster, NODE, AclOperation.CREATE, permission=DENY),
    ]
    kept = [binding(*of_cluster, principal, each) for principal in (NODE, ANONYMOUS) for each in KEPT]
    with acls(cluster, *forbidden, *kept, binding(*of_cluster, ANONYMOUS, AclOperation.CREATE)):
        reject_one(jobs)
    assert jobs.outcome() == ([0, 1], 0, None)
