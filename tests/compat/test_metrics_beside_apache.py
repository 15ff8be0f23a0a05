"""The same requests to kafkapy and to Apache Kafka: the same metrics, by name, type and labels, with the same counts.

Apache Kafka is scraped through Prometheus' JMX exporter, with rules that give Strimzi's names (jmx_rules.yaml).
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import pytest

from harness.servers import QUICK_JVM, ApacheKafka, Kafkapy, Server, free_port
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.record.compression import GZIP
from kafkapy.server.admin.catalogue import ABSENT, UNNAMED
from tests.support.client_requests import batch_of, create_topic, delete_topic, fetch, produce
from tests.support.eventually import eventually
from tests.support.offsets import commit, find_coordinator
from tests.support.scraped import Labels, Samples, samples_of, text_of, types_of
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS, JMX_EXPORTER_LIBS

pytestmark = [pytest.mark.long, pytest.mark.ours]  # it starts both brokers itself

RULES = Path(__file__).with_name("jmx_rules.yaml")
ASKED = ("Produce", "FetchConsumer", "Fetch", "OffsetCommit", "Heartbeat")
"""Apache Kafka's broker forwards CreateTopics and the like to its controller, and counts them twice."""
RAFT_CHANNEL = "kafka_server_raftchannelmetrics_"
TOPICS = ("plain", "compacted", "small", "inflated")
ELSEWHERE = ("kafka_brokers", "kafka_topic_", "kafka_consumergroup_", "kafka_coordinator_group_")
"""Names of kafka_exporter, which asks a broker from outside, and of domains that these rules pass over."""
LATE = {"kafka_server_delayedfetchmetrics_expires_total", "kafka_server_delayedproducemetrics_expires_total"}
"""What Apache Kafka makes when it first counts something."""
OF_THE_MOMENT = {
    "kafka_server_delayedremotelistoffsetsmetrics_expires_total",
    "kafka_server_socket_server_metrics_connections_software",
}
"""Of tiered storage, which metrics.tsv does not have, and of connections, which Apache Kafka has to itself."""
SHARE = "kafka_log_log_retentionsizein_percent"
SIZE = "kafka_log_log_size"
RETENTION_BYTES = 1000
"""Of the topic `plain`."""
TRANSACTION_ABORTABLE = 120
FROM_THE_FIRST_SCRAPE_ON = {
    "kafka_server_socket_server_metrics_io_time_ns_total",
    "kafka_server_socket_server_metrics_io_wait_time_ns_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count_total",
    "kafka_server_kafkarequesthandlerpool_brokerrequesthandleravgidlepercent_count_total",
    "kafka_server_kafkarequesthandlerpool_controllerrequesthandleravgidlepercent_count_total",
}
"""What the event loop's idle time is shown as."""
LARGE = b"large" * 2000
CONVERTED_BYTES = 2 * (61 + 5 * (len(LARGE) + 12))
"""Of a batch of five such records, inflated and written anew; a record has at least 12 bytes besides its value."""
COMMON = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
}
EQUAL = {
    "kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount",
    "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount",
    "kafka_log_log_retentionsizein_percent",
    "kafka_network_acceptor_acceptorblockedpercent_count_total",
    "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count_total",
    "kafka_server_addpartitionstotxnmanager_verificationtimems_count_total",
    "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
    "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
    "kafka_utils_throttler_cleaner_io_count_total",
}
"""Counts and sizes that must be equal, too; and logins of the quorum's channel: none."""


@dataclass
class Scraped:
    """What a broker tells after the script; `restarted`: what it tells after a stop and another start."""

    types: dict[str, str]
    samples: Samples
    restarted: Samples

    def labels(self) -> dict[str, set[frozenset[str]]]:
        """Return the sets of label names by name."""
        found: dict[str, set[frozenset[str]]] = {}
        for name, labels in self.samples:
            found.setdefault(name, set()).add(frozenset(key for key, _ in labels))
        return found


def play(bootstrap: str) -> None:
    """Appends, reads, errors of both, a topic that goes, a transaction, a group."""
    with WireClient(bootstrap) as client:
        client.call(ApiVersionsRequest("scraper", client_software_version="1.0"), 4)
        plain = create_topic(client, "plain", 2, retention_bytes=str(RETENTION_BYTES))
        create_topic(client, "compacted", cleanup_policy="compact")
        create_topic(client, "small", max_message_bytes="200")
        create_topic(client, "inflated", compression_type="uncompressed")
        create_topic(client, "gone")
        client.call(CreateTopicsRequest(topics=[CreatableTopic(name="plain", num_partitions=1)]), 7)
        for version in (9, 12):
            assert produce(client, "plain", batch_of(3), version=version).error_code == 0
        assert produce(client, plain, batch_of(2), partition=1).error_code == 0
        assert produce(client, "gone", batch_of()).error_code == 0
        damaged = bytearray(batch_of())
        damaged[-1] ^= 1
        assert produce(client, "plain", bytes(damaged)).error_code == 2
        assert produce(client, "compacted", batch_of()).error_code == 87
        assert produce(client, "small", batch_of(value=b"v" * 300)).error_code == 10
        assert produce(client, "nowhere", batch_of()).error_code == 3
        for wrong in (batch_of(base_offset=5), batch_of(is_control=True), batch_of(2, last_offset_delta=7)):
            assert produce(client, "plain", wrong).error_code == 87
        assert produce(client, "plain", batch_of(2, compression=GZIP)).error_code == 0
        for _ in range(2):  # a repeated batch is converted again, before it is found to be a duplicate
            batch = batch_of(5, value=LARGE, compression=GZIP, producer_id=900, producer_epoch=0, base_sequence=0)
            assert produce(client, "inflated", batch).error_code == 0
        assert fetch(client, plain).error_code == 0
        assert fetch(client, plain, 100).error_code == 1
        delete_topic(client, "gone")
        producer = TransactionalProducer(client, "t")
        assert producer.init() == 0
        assert producer.send("plain") == 0
        assert producer.send("plain", version=11, partition=1) == TRANSACTION_ABORTABLE, "it was not added"
        assert producer.end(commit=True) == 0
        find_coordinator(client, "g")
        assert commit(client, "g", "plain", 2) == [0]
        assert commit(client, "g", "nowhere", 2) == [3]
        assert client.call(HeartbeatRequest("g", generation_id=1, member_id="unknown"), 4).error_code == 25


def settled(port: int) -> str:
    """Return what is told once the deleted topic's series are gone and retention was looked at, "" before."""
    text = text_of(port)
    return text if 'topic="gone"' not in text and shares_are_current(samples_of(text)) else ""


def shares_are_current(samples: Samples) -> bool:
    """Whether the shares of retention.bytes are those of the sizes: Apache Kafka works them out twice a second."""
    return all(
        samples.get((SHARE, frozenset({("topic_plain_partition", partition)})))
        == samples.get((SIZE, frozenset({("topic", "plain"), ("partition", partition)})), -1) * 100 // RETENTION_BYTES
        for partition in ("0", "1")
    )


def restarted(server: Server, port: int) -> Samples:
    """Start the server again. Apache Kafka then tells of the deleted topic's log until its files are gone."""
    server.stop()
    server.start()
    found: Samples
    found = eventually(lambda: samples if shares_are_current(samples := samples_of(text_of(port))) else None)
    return found


def scraped(server: Server, port: int) -> Scraped:
    play(server.bootstrap)
    text = eventually(lambda: settled(port))
    return Scraped(types_of(text), samples_of(text), restarted(server, port))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    port = free_port()
    properties = {**COMMON, "kafkapy.admin.listener": f"127.0.0.1:{port}"}
    with Kafkapy(tmp_path_factory.mktemp("kafkapy") / "data", properties) as broker:
        yield scraped(broker, port)


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    agents = list(JMX_EXPORTER_LIBS.glob("jmx_prometheus_javaagent-*.jar"))
    if not agents or not JAVA_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("Apache Kafka and the JMX exporter are needed: `make tools` fetches them")
    port = free_port()
    properties = {**COMMON, "num.network.threads": "3"}
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache") / "data", properties)
    kafka.heap = "384m"
    kafka.jvm_options = [*QUICK_JVM, f"-javaagent:{agents[0]}=127.0.0.1:{port}:{RULES}"]
    with kafka:
        yield scraped(kafka, port)


def test_every_name_is_one_of_apache_kafkas_with_its_type_and_labels(ours: Scraped, apaches: Scraped) -> None:
    mine = {
        name: kind
        for name, kind in ours.types.items()
        if name.startswith("kafka_") and name not in UNNAMED | LATE and not name.startswith(ELSEWHERE)
    }
    assert len(mine) > 120
    assert mine.keys() - apaches.types.keys() == set()
    theirs = {name: apaches.types[name] for name in mine}
    assert mine == theirs
    my_labels, their_labels = ours.labels(), apaches.labels()
    differing = {name: (my_labels[name], their_labels[name]) for name in mine if my_labels[name] - their_labels[name]}
    assert differing == {}


def counts(found: Scraped) -> dict[tuple[str, Labels], float]:
    """Return what must be equal: the counts of the requests and topics of the script, and the topics' logs."""
    kept = {}
    for (name, labels), value in found.samples.items():
        named = dict(labels)
        of_topic = named.get("topic") in TOPICS and name.startswith(
            ("kafka_server_brokertopicmetrics_", "kafka_log_log_", "kafka_cluster_partition_")
        )
        of_request = (
            named.get("request") in ASKED
            and name.startswith("kafka_network_requestmetrics_")
            and name.endswith("_total")
        )
        of_controller = name in (
            "kafka_controller_kafkacontroller_globaltopiccount",
            "kafka_controller_kafkacontroller_globalpartitioncount",
            "kafka_controller_kafkacontroller_activecontrollercount",
            "kafka_controller_kafkacontroller_activebrokercount",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_server_replicamanager_partitioncount",
            "kafka_server_replicamanager_leadercount",
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_server_kafkaserver_brokerstate",
        ) or name.startswith("kafka_server_metadataloader_finalizedlevel")
        is_equal = name in EQUAL or (name.startswith(RAFT_CHANNEL) and "authentication" in name)
        of_broker = name.startswith("kafka_server_brokertopicmetrics_") and not labels
        if of_topic or of_request or of_controller or of_broker or (is_equal and not isnan(value)):
            kept[name, labels] = value
    return kept


def test_counts_sizes_and_offsets_are_the_same(ours: Scraped, apaches: Scraped) -> None:
    mine, theirs = counts(ours), counts(apaches)
    assert len(mine) > 80
    differing = {
        (name, *sorted(labels)): (mine[name, labels], theirs.get((name, labels), 0.0))
        for name, labels in mine
        if mine[name, labels] != theirs.get((name, labels), 0.0)
    }
    assert differing == {}


def test_conversions_take_the_same_memory(ours: Scraped, apaches: Scraped) -> None:
    largest = (
        "kafka_network_requestmetrics_temporarymemorybytes",
        frozenset({("request", "Produce"), ("quantile", "0.999")}),
    )
    mine, theirs = ours.samples[largest], apaches.samples[largest]
    assert theirs == pytest.approx(CONVERTED_BYTES, rel=0.01)
    assert mine == pytest.approx(theirs, rel=0.0625), "histograms are exact to a sixteenth"
    count = "kafka_server_brokertopicmetrics_producemessageconversions_total", frozenset({("topic", "inflated")})
    assert ours.samples[count] == apaches.samples[count] == 2 * 5


def test_what_moves_in_apache_kafka_moves_here(ours: Scraped, apaches: Scraped) -> None:
    """A counter that is served and never counts is found here, if the script makes Apache Kafka count."""
    mine, theirs = moved(ours), moved(apaches)
    assert len(mine & theirs) > 40
    still = {name for name in theirs & ours.types.keys() - mine if not name.startswith(RAFT_CHANNEL)}
    assert still - FROM_THE_FIRST_SCRAPE_ON == set(), "a node asks itself without a RAFT_CHANNEL"


def moved(found: Scraped) -> set[str]:
    """Return the names of counters that have counted something."""
    counters = {name for name, kind in found.types.items() if kind == "counter"}
    return {name for (name, _), value in found.samples.items() if value and name in counters}


def test_nothing_that_the_script_made_is_counted_by_apache_kafka_alone(ours: Scraped, apaches: Scraped) -> None:
    mine, theirs = counts(ours), counts(apaches)
    missing = {(name, *sorted(labels)): theirs[name, labels] for name, labels in theirs.keys() - mine.keys()}
    assert {key: value for key, value in missing.items() if value} == {}


def test_the_series_of_a_deleted_topic_are_gone_from_both(ours: Scraped, apaches: Scraped) -> None:
    for found in (ours, apaches):
        assert not [name for name, labels in found.samples if ("topic", "gone") in labels]


def logs(samples: Samples) -> Samples:
    """Return what is told of the logs of the script's topics, and of the group's."""
    return {
        (name, labels): value
        for (name, labels), value in samples.items()
        if name.startswith("kafka_log_log_")
        and (dict(labels).get("topic") in (*TOPICS, "__consumer_offsets") or "topic_plain_partition" in dict(labels))
    }


def test_after_a_restart_both_describe_their_logs_alike(ours: Scraped, apaches: Scraped) -> None:
    mine = logs(ours.restarted)
    assert len(mine) > 20
    assert mine == logs(apaches.restarted)
    assert {key: value for key, value in mine.items() if "segment" not in key[0]} == {
        key: value for key, value in logs(ours.samples).items() if "segment" not in key[0]
    }


def test_every_name_of_apache_kafka_is_served_or_named_as_absent(ours: Scraped, apaches: Scraped) -> None:
    theirs = {name for name in apaches.types if name.startswith("kafka_") and not name.startswith(ELSEWHERE)}
    assert len(theirs) > 200
    assert theirs - ours.types.keys() - ABSENT.keys() - OF_THE_MOMENT == set()
