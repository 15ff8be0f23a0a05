"""The metrics of Apache Kafka that /metrics lacks, with the reason; and those that it has under a name of its own.

The names are those that Strimzi's rules of the JMX exporter give to the MBeans of Apache Kafka 4.3.1
(tests/golden/metrics.tsv). Each of them is either served or here.
"""

from typing import Final

YAMMER: Final = "it counts the metrics in a registry of Yammer's Java library"

ABSENT: Final = {
    "kafka_server_controllerserver_yammer_metrics_count": YAMMER,
    "kafka_server_kafkaserver_yammer_metrics_count": YAMMER,
}
"""Metrics whose subject does not exist here, with the reason."""

COORDINATORS: Final = ("kafka_server_group_coordinator_metrics_", "kafka_server_share_coordinator_metrics_")
QUEUE_TIMES: Final = tuple(f"event_queue_time_ms_{each}" for each in ("p50", "p95", "p99", "p999", "max"))
FLUSH_TIMES: Final = tuple(f"batch_flush_time_ms_{each}" for each in ("p50", "p95", "p99", "p999", "max"))
OF_RUNTIME: Final = ("thread_idle_ratio_avg", "event_queue_size", "batch_flush_rate", *QUEUE_TIMES, *FLUSH_TIMES)
OF_GROUPS: Final = frozenset(
    f"{COORDINATORS[0]}{event}_{figure}"
    for event in (
        "offset_commit",
        "offset_expiration",
        "offset_deletion",
        "group_completed_rebalance",
        "consumer_group_rebalance",
        "share_group_rebalance",
        "streams_group_rebalance",
    )
    for figure in ("rate", "count_total")
)
OF_BOTH: Final = frozenset(f"{kind}{name}" for kind in COORDINATORS for name in OF_RUNTIME)
UNNAMED: Final = (
    OF_BOTH
    | OF_GROUPS
    | {
        "kafka_log_logcleaner_last_clean_bytes_before",
        "kafka_log_logcleaner_last_clean_bytes_after",
        "kafka_log_logcleaner_last_clean_records_read",
        "kafka_log_logcleaner_last_clean_records_kept",
        "kafka_server_group_coordinator_metrics_classic_group_count",
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        "kafka_server_group_coordinator_metrics_group_count",
        "kafka_server_group_coordinator_metrics_num_partitions",
        "kafka_server_group_coordinator_metrics_partition_load_time_avg",
        "kafka_server_group_coordinator_metrics_partition_load_time_max",
        "kafka_server_group_coordinator_metrics_share_group_count",
        "kafka_server_group_coordinator_metrics_streams_group_count",
        "kafka_server_share_coordinator_metrics_num_partitions",
        "kafka_server_share_coordinator_metrics_partition_load_time_avg",
        "kafka_server_share_coordinator_metrics_partition_load_time_max",
        "kafka_server_share_coordinator_metrics_write_latency_avg",
        "kafka_server_share_coordinator_metrics_write_latency_max",
        "kafka_server_share_coordinator_metrics_write_rate",
        "kafka_server_share_coordinator_metrics_write_total",
        "kafka_server_transaction_coordinator_metrics_partition_load_time_avg",
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
    }
)
"""Metrics that Apache Kafka does not have (its cleaner logs these values), or that Strimzi's rules pass over.

A new metric whose name begins with `kafka_`, and that Apache Kafka lacks, belongs here.
"""

FATAL: Final = "an error in the metadata stops the process"
NO_THREAD: Final = "there is no such thread that could die alone"
NO_QUEUE: Final = "there is no such queue: the event loop serves a request when it has read it"
ALWAYS_ZERO: Final = {
    "kafka_controller_kafkacontroller_metadataerrorcount": FATAL,
    "kafka_server_brokermetadatametrics_metadata_apply_error_count": FATAL,
    "kafka_server_brokermetadatametrics_metadata_load_error_count": FATAL,
    "kafka_server_raftmetrics_number_unknown_voter_connections": "connections are made to known voters only",
    "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount": "heartbeats wait for no other decision",
    "kafka_log_logcleaner_deadthreadcount": NO_THREAD,
    "kafka_server_replicafetchermanager_deadthreadcount": NO_THREAD,
    "kafka_server_replicaalterlogdirsmanager_deadthreadcount": NO_THREAD,
    "kafka_network_requestchannel_responsequeuesize": NO_QUEUE,
    "kafka_network_requestmetrics_requestqueuetimems": NO_QUEUE,
    "kafka_network_requestmetrics_responsequeuetimems": NO_QUEUE,
    "kafka_network_requestmetrics_responsesendtimems": NO_QUEUE,
    **{f"{kind}{name}": NO_QUEUE for kind in COORDINATORS for name in ("event_queue_size", *QUEUE_TIMES)},
    "kafka_server_brokertopicmetrics_fetchmessageconversions_total": "Kafka 4 sends batches as they are stored",
    "kafka_server_brokertopicmetrics_invalidmagicnumberrecords_total": "Kafka 4 takes batches of one format only",
}
"""Metrics that are served as 0, whatever happens, with the reason. All others count something.

Deviation: Apache Kafka's move, such as the times in queues. Here they are 0, because there are no such queues.
"""
