"""/metrics of a running broker: names and labels as dashboards for Apache Kafka ask for them, values that are true."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.gauge import Gauge
from kafkapy.server.admin.catalogue import ABSENT, UNNAMED
from kafkapy.server.admin.metrics import exposition, prometheus_name

KNOWN = [line.split("\t") for line in Path("tests/golden/metrics.tsv").read_text().splitlines()[1:]]
"""dialect, name, type, labels, MBean: of Strimzi's rules, Confluent's and kafka_exporter."""
LABELS = {
    name: {label.replace("_t1_", "_t_") for label in re.split(r"[, ]+(?:or )?", labels) if label and label != "-"}
    for _, name, _, labels, _ in KNOWN
}
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def scraped() -> Iterator[Samples]:
    """What a broker tells after 30 records in three partitions, 12 of one committed by a group."""
    port = free_port()
    with Broker(properties={"kafkapy.admin.listener": f":{port}"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 3)])["t"].result(60)
        producer = Producer(servers)
        for number in range(30):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(60) == 0
        consumer = Consumer({**servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 1, 4), TopicPartition("t", 2, 8)], asynchronous=False)
        consumer.close()
        yield samples(port)


def samples(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(scraped: Samples, name: str, **labels: str) -> float:
    return scraped[name, frozenset(labels.items())]


def test_names_and_labels_are_those_that_boards_know(scraped: Samples) -> None:
    found: dict[str, set[str]] = {}
    for name, labels in scraped:
        found.setdefault(name, set()).update(label for label, _ in labels)
    unknown = {name for name in found.keys() - LABELS.keys() - UNNAMED if not name.startswith(("kafkapy_", "process_"))}
    assert unknown == set()
    named = {name: labels - {"topic"} for name, labels in found.items() if name in LABELS}
    assert {name: labels for name, labels in named.items() if labels != LABELS[name] - {"topic"}} == {}


def test_each_name_of_apache_kafka_is_served_or_named_as_absent(scraped: Samples) -> None:
    names = {name for dialect, name, *_ in KNOWN if dialect == "strimzi-jmx"}
    assert len(names) == 275
    served = {name for name, _ in scraped} & names
    assert served | ABSENT.keys() == names
    assert served & ABSENT.keys() == set()


def test_partitions_and_logs_are_exported(scraped: Samples) -> None:
    for partition in ("0", "1", "2"):
        assert value(scraped, "kafka_log_log_logendoffset", topic="t", partition=partition) == 10
        assert value(scraped, "kafka_log_log_size", topic="t", partition=partition) > 0
        assert value(scraped, "kafka_cluster_partition_insyncreplicascount", topic="t", partition=partition) == 1
        assert value(scraped, "kafka_cluster_partition_underreplicated", topic="t", partition=partition) == 0
    count = value(scraped, "kafka_server_replicamanager_partitioncount")
    assert count == value(scraped, "kafka_server_replicamanager_leadercount") == 3 + 50
    assert value(scraped, "kafka_server_replicamanager_atminisrpartitioncount") == count


def test_the_metadata_is_returned(scraped: Samples) -> None:
    assert value(scraped, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(scraped, "kafka_controller_kafkacontroller_globaltopiccount") == 2
    assert value(scraped, "kafka_controller_kafkacontroller_globalpartitioncount") == 53
    assert value(scraped, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert value(scraped, "kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert value(scraped, "kafka_server_brokermetadatametrics_last_applied_record_offset") > 53
    assert value(scraped, "kafka_server_kafkaserver_brokerstate") == 3


def test_the_lag_of_a_group_is_exported(scraped: Samples) -> None:
    of_group = {"consumergroup": "g", "topic": "t"}
    assert value(scraped, "kafka_consumergroup_current_offset", **of_group, partition="1") == 4
    assert value(scraped, "kafka_consumergroup_lag", **of_group, partition="1") == 6
    assert value(scraped, "kafka_consumergroup_lag", **of_group, partition="2") == 2
    assert value(scraped, "kafka_consumergroup_lag_sum", **of_group) == 8
    assert value(scraped, "kafka_consumergroup_current_offset_sum", **of_group) == 12
    assert value(scraped, "kafka_consumergroup_members", consumergroup="g") == 0
    assert value(scraped, "kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1


def test_requests_are_counted_by_api_and_version(scraped: Samples) -> None:
    found = {
        labels["request"]: count
        for (name, tags), count in scraped.items()
        if name == "kafka_network_requestmetrics_requests_total" and (labels := dict(tags))
    }
    assert {"ApiVersions", "CreateTopics", "Metadata", "OffsetCommit", "Produce"} <= found.keys()
    assert found["Produce"] >= 3
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(scraped, errors, request="CreateTopics", error="NONE") == 1
    assert value(scraped, errors, request="OffsetCommit", error="NONE") == 2
    of_produces = "kafka_network_requestmetrics_totaltimems"
    assert value(scraped, f"{of_produces}_count_total", request="Produce") == found["Produce"]
    shown = [value(scraped, of_produces, request="Produce", quantile=each) for each in QUANTILES]
    assert 0 < shown[0] <= shown[-1] < 10_000
    assert shown == sorted(shown)


def test_topics_are_described_apart_and_together(scraped: Samples) -> None:
    prefix = "kafka_server_brokertopicmetrics"
    assert value(scraped, f"{prefix}_messagesin_total", topic="t") == 30
    assert value(scraped, f"{prefix}_bytesin_total", topic="t") > 30
    assert value(scraped, f"{prefix}_totalproducerequests_total", topic="t") >= 3
    assert value(scraped, f"{prefix}_messagesin_total") > 30, "with the group's offsets"
    assert value(scraped, f"{prefix}_failedproducerequests_total") == 0


def test_the_series_of_a_topic_go_with_it() -> None:
    port = free_port()
    properties = {"kafkapy.admin.listener": f":{port}", "auto.create.topics.enable": "false"}
    with Broker(properties=properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(2):
            admin.create_topics([NewTopic("t", 1)])["t"].result(30)
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("t", b"value")
            assert producer.flush(30) == 0
            found = samples(port)
            assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 1
            admin.delete_topics(["t"])["t"].result(30)
            found = samples(port)
            assert not [name for name, labels in found if ("topic", "t") in labels]
        assert value(found, "kafka_server_brokertopicmetrics_messagesin_total") == 2


def test_a_file_of_rules_names_a_brokers_metrics() -> None:
    pytest.importorskip("re2")
    pytest.importorskip("yaml")
    port = free_port()
    rules = str(Path("tests/compat/jmx_rules.yaml").absolute())
    with Broker(properties={"kafkapy.admin.listener": f":{port}", "kafkapy.metrics.rules": rules}):
        found = {name for name, _ in samples(port)}
    assert {name for name in found - LABELS.keys() - UNNAMED if not name.startswith(("kafkapy_", "process_"))} == set()
    assert len(found & LABELS.keys()) > 100


def test_a_counter_is_a_total_and_labels_are_escaped() -> None:
    counter = Gauge("kafka.server:type=FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec", 3, is_counter=True)
    hostile = Gauge("kafka.log:type=Log", "Size", 1, (("topic", 'a"b\n\\' + "x" * 65_536), ("partition", "0")))
    _, body = exposition([counter, hostile], "")
    by_name = {family.name: family for family in text_string_to_metric_families(body.decode())}
    (evictions,) = by_name["kafka_server_fetchsessioncache_incrementalfetchsessionevictions"].samples
    assert (evictions.name, evictions.value) == (prometheus_name(counter), 3)
    (size,) = by_name["kafka_log_log_size"].samples
    assert size.labels["topic"] == 'a"b\n\\' + "x" * 65_536
