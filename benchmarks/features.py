"""Loads that need a feature: a codec, TLS, transactions, three nodes. Where kafkapy lacks one they say "not yet"."""

from functools import partial

from benchmarks.java_clients import produce
from benchmarks.produce import LARGE_BATCHES
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import call, connect
from benchmarks.workload import TLS, Figures, Workload
from harness.servers import Server
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest

RECORD_BYTES = 1024
END_TXN = 26


def with_settings(
    server: Server, topic: str, scale: float, *, records: int = 600_000, replicas: int = 1,
    options: tuple[str, ...] = (), **settings: str,
) -> Figures:  # fmt: skip
    config = {"min.insync.replicas": "2"} if replicas > 1 else {}
    create_topic(server, topic, replicas=replicas, config=config)
    count = int(records * scale)
    figures = produce(
        server, topic, records=count, record_bytes=RECORD_BYTES, options=options, **LARGE_BATCHES, **settings
    )
    delete_topic(server, topic)
    return figures


def lacks_transactions(server: Server) -> str | None:
    with connect(server) as connection:
        response = call(connection, ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
    keys = {api.api_key for api in response.api_keys}
    return None if END_TXN in keys else "transactions are not served"


TRANSACTIONS = ("--transactional-id", "bench", "--transaction-duration-ms", "100")

WORKLOADS = [
    *(
        Workload(
            f"produce 1 KiB, {codec}",
            partial(with_settings, compression_type=codec),
            family="codecs",
            quick_rounds={"lz4": 1, "zstd": 2}.get(codec, 0),
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Workload(
        "produce 1 KiB in transactions of 100 ms",
        partial(with_settings, options=TRANSACTIONS),
        family="transactions",
        missing=lacks_transactions,
    ),
    Workload("produce 1 KiB over TLS", with_settings, family="tls", servers=TLS),
]
