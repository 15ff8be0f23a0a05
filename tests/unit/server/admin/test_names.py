"""Names and types by both sets of rules, held against what Apache Kafka's metrics are called by them."""

from pathlib import Path

import pytest

from kafkapy.server.admin.names import confluent_name, strimzi_name

SOCKETS = "kafka.server:type=socket-server-metrics"
HANDLERS = ("kafka.server:type=KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent")
PROCESSORS = ("kafka.network:type=SocketServer", "NetworkProcessorAvgIdlePercent")
TOPICS = ("kafka.server:type=BrokerTopicMetrics", "BytesInPerSec")
TIMES = ("kafka.network:type=RequestMetrics", "TotalTimeMs")
RAFT_CHANNEL = "kafka.server:type=raft-channel-metrics"
LEADER = ("kafka.server:type=raft-metrics", "current-leader")

CASES = [
    (*TOPICS, True, "server_brokertopicmetrics_bytesin_total"),
    (*TIMES, False, "network_requestmetrics_totaltimems"),
    (*TIMES, True, "network_requestmetrics_totaltimems_count_total"),
    (*LEADER, False, "server_raftmetrics_current_leader"),
    (SOCKETS, "connections", False, "server_socket_server_metrics_connections_software"),
    (SOCKETS, "connection-close-total", True, "server_socket_server_metrics_connection_close_total"),
    (*HANDLERS, False, "server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
    ("kafka.server:type=raft-metrics", "commit-latency-max", False, "server_raftmetrics_commit_latency_max_total"),
    (RAFT_CHANNEL, "request-size-max", False, "server_raftchannelmetrics_request_size_max_total"),
    (RAFT_CHANNEL, "request-size-avg", False, "server_raftchannelmetrics_request_size_avg"),
    (
        "kafka.network:type=Acceptor",
        "AcceptorBlockedPercent",
        True,
        "network_acceptor_acceptorblockedpercent_count_total",
    ),
    ("kafka.utils:type=Throttler", "cleaner-io", True, "utils_throttler_cleaner_io_count_total"),
    ("kafka.log:type=LogCleaner", "cleaner-recopy-percent", False, "log_logcleaner_cleaner_recopy_percent"),
]
CONFLUENT = [
    (*TOPICS, True, "server_brokertopicmetrics_bytesinpersec"),
    (*LEADER, False, "server_raft_metrics_current_leader"),
    (SOCKETS, "connections", False, "server_socketservermetrics_connections"),
    (*HANDLERS, False, "server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate"),
    (*PROCESSORS, False, "network_socketserver_networkprocessoravgidlepercent"),
    ("kafka.network:type=Acceptor", "AcceptorBlockedPercent", True, "network_acceptor_acceptorblockedpercent"),
    ("kafka.server:type=raft-metrics", "election-latency-max", False, "server_raft_metrics_election_latency_max"),
]
KNOWN = {
    (dialect, name): kind
    for dialect, name, kind, *_ in (
        line.split("\t") for line in Path("tests/golden/metrics.tsv").read_text().splitlines()[1:]
    )
}


@pytest.mark.parametrize(("group", "name", "is_counter", "expected"), CASES)
def test_strimzis_names(group: str, name: str, is_counter: bool, expected: str) -> None:
    named = strimzi_name(group, name, is_counter=is_counter)
    assert (named.name, named.kind) == (f"kafka_{expected}", KNOWN["strimzi-jmx", f"kafka_{expected}"])


@pytest.mark.parametrize(("group", "name", "is_counter", "expected"), CONFLUENT)
def test_confluents_names(group: str, name: str, is_counter: bool, expected: str) -> None:
    named = confluent_name(group, name, is_counter=is_counter)
    assert named.name == f"kafka_{expected}"
    assert ("confluent-jmx", named.name) in KNOWN


def test_confluents_labels_have_no_capitals() -> None:
    named = confluent_name("kafka.server:type=socket-server-metrics", "connections", is_counter=False)
    assert named.labels((("clientSoftwareName", "a"),)) == (("client_software_name", "a"),)


def test_the_label_of_a_share_of_retention_has_the_topic_in_its_name() -> None:
    named = strimzi_name("kafka.log:type=Log", "RetentionSizeInPercent", is_counter=False)
    assert named.labels((("topic", "__cluster_metadata"), ("partition", "0"))) == (
        ("topic_cluster_metadata_partition", "0"),
    )
