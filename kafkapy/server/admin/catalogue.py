"""Which metrics of Apache Kafka /metrics does not have, and why; and which it has under a name that no rules give.

The names are those that Strimzi's rules of the JMX exporter give to the MBeans of Apache Kafka 4.3.1
(tests/golden/metrics.tsv). Each of them is either served or here.
"""

from typing import Final

SHARE_GROUPS: Final = "there are no share groups (KIP-932) here"
YAMMER: Final = "it counts the metrics in a registry of Yammer's Java library"

ABSENT: Final = {
    "kafka_server_brokertopicmetrics_failedshareacknowledgementrequests_total": SHARE_GROUPS,
    "kafka_server_brokertopicmetrics_failedsharefetchrequests_total": SHARE_GROUPS,
    "kafka_server_brokertopicmetrics_totalshareacknowledgementrequests_total": SHARE_GROUPS,
    "kafka_server_brokertopicmetrics_totalsharefetchrequests_total": SHARE_GROUPS,
    "kafka_server_sharegroupmetrics_partitionloadtimems": SHARE_GROUPS,
    "kafka_server_sharegroupmetrics_partitionloadtimems_count_total": SHARE_GROUPS,
    "kafka_server_sharegroupmetrics_recordacknowledgements_total": SHARE_GROUPS,
    "kafka_server_sharesessioncache_sharepartitionscount": SHARE_GROUPS,
    "kafka_server_sharesessioncache_sharesessionevictions_total": SHARE_GROUPS,
    "kafka_server_sharesessioncache_sharesessionscount": SHARE_GROUPS,
    "kafka_server_controllerserver_yammer_metrics_count": YAMMER,
    "kafka_server_kafkaserver_yammer_metrics_count": YAMMER,
}
"""Metrics whose subject does not exist here, with the reason."""

UNNAMED: Final = frozenset(
    {
        "kafka_log_logcleaner_last_clean_bytes_before",
        "kafka_log_logcleaner_last_clean_bytes_after",
        "kafka_log_logcleaner_last_clean_records_read",
        "kafka_log_logcleaner_last_clean_records_kept",
        "kafka_server_group_coordinator_metrics_partition_load_time_max",
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
    }
)
"""Metrics that Apache Kafka does not have (its cleaner logs these values), or that Strimzi's rules pass over.

A new metric whose name begins with `kafka_`, and that Apache Kafka lacks, belongs here.
"""
