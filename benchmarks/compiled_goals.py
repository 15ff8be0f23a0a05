"""What kafkapy compiled must reach beside a warm Apache Kafka (and of its own, where there is no ratio)."""

from typing import Final

from benchmarks.report import Goal

PER_GB: Final = "broker_cpu_s_per_gb"
SMALL: Final = "16 KiB"
LARGE: Final = "64 KiB"
"""Parts of the names of loads: how large their batches are."""

COMPILED_GOALS: Final = (
    Goal("producing, batches of 16 KiB: CPU for a GB", ("produce", "sockets"), PER_GB, 1.6, of_loads=SMALL),
    Goal("producing, batches of 64 KiB: CPU for a GB", ("produce", "sockets"), PER_GB, 1.3, of_loads=LARGE),
    Goal("reading: CPU for a GB", ("consume",), PER_GB, 1.6),
    Goal("reading, the client is not the limit: CPU for a GB", ("sockets",), PER_GB, 1.6, of_loads="fetch"),
    Goal("small requests: CPU", ("requests",), "broker_cpu_us_per_request", 5),
    Goal("the client is not the limit: records a second", ("sockets",), "records_per_s", 1.5),
    Goal("stock clients: as many records a second", ("produce", "consume"), "records_per_s", 1),
    Goal("end to end: p99", ("latency",), "p99_ms", 1.2),
    Goal("growth: flat within a fifth", ("growth",), "growth", ours_at_most=1.2),
    Goal("heartbeats: CPU", ("groups",), "broker_cpu_ms_per_1000", 2),
    Goal("offset commits: CPU", ("groups",), "broker_cpu_us_per_commit", 2),
    Goal("compaction: wall clock", ("compaction",), "records_per_s", 1.2),
    Goal("ready in 0.3 s", ("rest",), "ready_s", ours_at_most=0.3),
    Goal("idle memory of 60 MB", ("rest",), "idle_memory_mb", ours_at_most=60),
)
