"""Apache Kafka's own load tools, and what they say."""

import re
import subprocess

from benchmarks.workload import Cost, Figures
from harness.servers import Server, java

PRODUCED = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th")
WARM_UP_RECORDS, WARM_UP_BYTES = 500_000, 100_000_000
"""What a producer's JVM sends before what is timed, whichever is less: two or three seconds. Its first 400,000 records
of 100 bytes leave at a quarter of its later pace: a short load without them measures the JVM's compiler."""


def produce(
    server: Server, topic: str, *, records: int, record_bytes: int, acks: str = "all", options: tuple[str, ...] = (),
    **settings: str,
) -> Figures:  # fmt: skip
    """ProducerPerformance as fast as it goes; `settings` are the producer's keys with underscores.

    Throughput and latency are those of `records` after a warm-up; costs are those of all that was sent.
    """
    warm_up = min(WARM_UP_RECORDS, WARM_UP_BYTES // record_bytes)
    sent = warm_up + records
    load = ["--topic", topic, "--num-records", str(sent), "--record-size", str(record_bytes), "--throughput", "-1"]
    load += ["--warmup-records", str(warm_up)]
    properties = {
        "bootstrap.servers": server.bootstrap,
        "acks": acks,
        "enable.idempotence": str(acks == "all").lower(),
        **server.java_settings,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    props = [f"{key}={value}" for key, value in properties.items()]
    with Cost(server) as cost:
        output = _run("org.apache.kafka.tools.ProducerPerformance", *load, *options, "--producer-props", *props)
    found = PRODUCED.findall(output)
    assert found, f"ProducerPerformance said:\n{output}"
    timed, per_s, p50_ms, p99_ms = found[-1]
    assert int(timed) == records, f"{timed} of {records} records were timed"
    figures = cost.figures(records=sent, size_bytes=sent * record_bytes)
    pace = {"records_per_s": float(per_s), "mb_per_s": float(per_s) * record_bytes / 1e6}
    return {**figures, **pace, "p50_ms": float(p50_ms), "p99_ms": float(p99_ms)}


def consume(server: Server, topic: str, *, records: int, size_bytes: int, **settings: str) -> Figures:
    """ConsumerPerformance reads a topic from its beginning; the time in which it joins its group is left out.

    `settings` are the consumer's keys with underscores.
    """
    arguments = ["--topic", topic, "--num-records", str(records), "--timeout", "60000", "--hide-header"]
    config = {**server.java_settings, **{key.replace("_", "."): value for key, value in settings.items()}}
    properties = [part for key, value in config.items() for part in ("--command-property", f"{key}={value}")]
    with Cost(server) as cost:
        output = _run(
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server",
            server.bootstrap,
            *arguments,
            *properties,
        )
    columns = [column.strip() for column in output.strip().splitlines()[-1].split(",")]
    assert len(columns) == 10, f"ConsumerPerformance said:\n{output}"
    assert int(columns[4]) >= records, f"{columns[4]} of {records} records were read"
    return cost.figures(records=records, size_bytes=size_bytes, seconds=int(columns[7]) / 1000)


def _run(main_class: str, *arguments: str) -> str:
    result = subprocess.run(java(main_class, *arguments), capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, f"{main_class} failed:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result.stdout
