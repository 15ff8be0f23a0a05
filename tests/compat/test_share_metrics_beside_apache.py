"""A queue on kafkapy and on Apache Kafka: the same metrics of share groups, by name, type and labels, and counts.

Apache Kafka is scraped through Prometheus' JMX exporter (jmx_rules_share.yaml).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Kafkapy, free_port
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.eventually import eventually
from tests.support.group_configs import set_group_configs
from tests.support.membership import Member
from tests.support.offsets import commit, delete_offsets, find_coordinator
from tests.support.quick_kafka import QuickKafka
from tests.support.scraped import Labels, Samples, samples_of, text_of, types_of
from tests.support.share_members import LEAVES, ShareMember
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS, JMX_EXPORTER_LIBS

pytestmark = [pytest.mark.long, pytest.mark.ours]  # it starts both brokers itself

RULES = Path(__file__).with_name("jmx_rules_share.yaml")
GROUP, TOPIC, DEAD = "queue", "orders", "dlq.orders"
ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)
COMMON = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}
OF_THREADS = ("_event_processing_", "_event_purgatory_", "_batch_linger_", "_batch_buffer_", "_background_")
"""Steps and buffers of Apache Kafka's coordinators that those here do not have, or would be slowed by to measure."""
OURS = ("kafka_server_share", "kafka_server_group_coordinator", "kafka_server_delayedshare")
OF_TOPICS = "kafka_server_brokertopicmetrics_"
LETTERS = "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_count_total"
TIMED_OUT = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total"
EQUAL = {
    TIMED_OUT,
    LETTERS,
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "kafka_server_sharegroupmetrics_partitionloadtimems_count_total",
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "kafka_server_sharepartitionmetrics_inflightbatchcount",
    "kafka_server_sharepartitionmetrics_inflightbatchmessagecount_count_total",
    "kafka_server_sharesessioncache_sharesessionscount",
    "kafka_server_sharesessioncache_sharepartitionscount",
    "kafka_server_sharesessioncache_sharesessionevictions_total",
    "kafka_server_share_coordinator_metrics_num_partitions",
    "kafka_server_share_coordinator_metrics_write_total",
    "kafka_server_group_coordinator_metrics_share_group_rebalance_count_total",
    "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count_total",
    "kafka_server_group_coordinator_metrics_streams_group_rebalance_count_total",
    "kafka_server_group_coordinator_metrics_group_completed_rebalance_count_total",
    "kafka_server_group_coordinator_metrics_offset_commit_count_total",
    "kafka_server_group_coordinator_metrics_offset_deletion_count_total",
    "kafka_server_group_coordinator_metrics_offset_expiration_count_total",
}
"""What the script alone decides: not how long something took, nor groups, which Apache Kafka counts once a minute."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Samples]]:
    port = free_port()
    properties = {**COMMON, "kafkapy.admin.listener": f"127.0.0.1:{port}"}
    with Kafkapy(tmp_path_factory.mktemp("kafkapy") / "data", properties) as broker:
        yield play(broker.bootstrap, port)


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Samples]]:
    agents = list(JMX_EXPORTER_LIBS.glob("jmx_prometheus_javaagent-*.jar"))
    if not agents or not JAVA_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("Apache Kafka and the JMX exporter are needed: `make tools` fetches them")
    port = free_port()
    kafka = QuickKafka(tmp_path_factory.mktemp("apache") / "data", COMMON)
    kafka.jvm_options = [*kafka.jvm_options, f"-javaagent:{agents[0]}=127.0.0.1:{port}:{RULES}"]
    with kafka:
        yield play(kafka.bootstrap, port)


def play(bootstrap: str, port: int) -> tuple[dict[str, str], Samples]:
    """One member acquires, acknowledges in each way, and lets locks time out; another one's connection closes."""
    with WireClient(bootstrap) as client:
        topic_id = create_topic(client, TOPIC)
        create_topic(client, DEAD, errors_deadletterqueue_group_enable="true")
        own = {"share_auto_offset_reset": "earliest", "errors_deadletterqueue_topic_name": DEAD}
        set_group_configs(client, GROUP, **own)
        find_coordinator(client, GROUP)
        use_other_groups(client)
        for _ in range(3):
            assert produce(client, TOPIC, batch_of(10)).error_code == 0
        member = ShareMember(client, GROUP, topic_id)
        member.join(TOPIC)
        assert member.acquire(10) == [(0, 9, 1)]
        renewal = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
        assert member.fetch((0, 9, [RENEW]), is_renew_ack=True, **renewal).error_code == 0
        assert member.acknowledge((0, 6, [ACCEPT]), (7, 9, [ACCEPT, REJECT, RELEASE])) == 0
        assert member.acknowledge((0, 0, [ACCEPT])) == 0, "below the start: as if it had been there"
        assert member.acknowledge((5000, 5000, [ACCEPT])) != 0
        assert member.acquire(1) == [(9, 9, 2)]
        with WireClient(bootstrap) as other:
            ShareMember(other, GROUP, topic_id, "other").fetch(max_wait_ms=0)
        text = eventually(lambda: settled(port))
        member.heartbeat(member_epoch=LEAVES)
    return types_of(text), samples_of(text)


def use_other_groups(client: WireClient) -> None:
    """Offsets are committed and deleted; a consumer group gets a member, and a classic one two generations."""
    assert commit(client, "simple", TOPIC, 1) == commit(client, "simple", TOPIC, 2) == [0]
    assert commit(client, "simple", DEAD, 3) == [0]
    assert delete_offsets(client, "simple", TOPIC, 0, 1).error_code == 0
    joining = ConsumerGroupHeartbeatRequest(
        "consumers",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert client.call(joining, 1).error_code == 0
    member = Member(client, "classic")
    member.get_id()
    for _ in range(2):
        assert member.join().error_code == 0
        assert member.sync({member.member_id: b"all"}).error_code == 0


def settled(port: int) -> str:
    """Return what is told once the lock has timed out, the other session ended, a dead letter is written; "" before."""
    text = text_of(port)
    samples = samples_of(text)
    timed_out = [value for (name, _), value in samples.items() if name == TIMED_OUT]
    letters = [value for (name, _), value in samples.items() if name == LETTERS]
    evicted = samples.get(("kafka_server_sharesessioncache_sharesessionevictions_total", frozenset()), 0)
    return text if sum(timed_out) > 0 and evicted > 0 and sum(letters) > 0 else ""


def of_shares(found: Samples) -> dict[str, set[Labels]]:
    """Return the label sets of each name that is about share groups."""
    names: dict[str, set[Labels]] = {}
    for name, labels in found:
        if name.startswith(OURS) or (name.startswith(OF_TOPICS) and "share" in name):
            names.setdefault(name, set()).add(labels)
    return names


def test_every_name_has_the_type_and_labels_of_apache_kafkas(
    ours: tuple[dict[str, str], Samples], apaches: tuple[dict[str, str], Samples]
) -> None:
    mine, theirs = of_shares(ours[1]), of_shares(apaches[1])
    assert len(mine) > 30
    assert mine.keys() - theirs.keys() == set()
    assert {name: labels - theirs[name] for name, labels in mine.items() if labels - theirs[name]} == {}
    assert {name: ours[0].get(name) for name in mine} == {name: apaches[0].get(name) for name in mine}


def test_every_name_of_share_groups_is_served(
    ours: tuple[dict[str, str], Samples], apaches: tuple[dict[str, str], Samples]
) -> None:
    mine, theirs = of_shares(ours[1]), of_shares(apaches[1])
    of_groups = {name for name in theirs if "group_coordinator" in name and "share" not in name}
    of_threads = {name for name in theirs if any(word in name for word in OF_THREADS)}
    assert theirs.keys() - mine.keys() - of_groups - of_threads == set()


def test_what_the_script_decides_is_counted_alike(
    ours: tuple[dict[str, str], Samples], apaches: tuple[dict[str, str], Samples]
) -> None:
    mine = {key: value for key, value in ours[1].items() if key[0] in EQUAL}
    theirs = {key: apaches[1].get(key) for key in mine}
    assert {name for name, _ in mine} == EQUAL
    assert mine == theirs
