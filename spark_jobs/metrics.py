"""Progress and lag of a job: Prometheus metrics and log lines."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from spark_jobs.config import JobConfig
from spark_jobs.errors import JobError

log = logging.getLogger("spark_jobs")


@contextmanager
def served(config: JobConfig, registry: CollectorRegistry) -> Iterator[None]:
    """Serve the metrics if the configuration says so. Raises JobError if the port is in use."""
    if config.metrics_port is None:
        yield
        return
    try:
        server, thread = start_http_server(config.metrics_port, config.metrics_host, registry)
    except OSError as error:
        where = f"{config.metrics_host}:{config.metrics_port}"
        raise JobError(f"metrics cannot be served on {where}: {error.strerror}") from None
    log.info("metrics on http://%s:%d/metrics", config.metrics_host, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def listening(spark: SparkSession, metrics: "QueryMetrics") -> Iterator["QueryMetrics"]:
    """Serve the metrics, and update them by the events of the session's queries."""
    with served(metrics.config, metrics.registry):
        spark.streams.addListener(metrics)
        try:
            yield metrics
        finally:
            spark.streams.removeListener(metrics)


class FeedMetrics:
    """Metrics of a feed: the records that it has sent."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.records = Counter("feed_records", "records given to the producer", ["topic"], registry=self.registry)
        self.time = Gauge("feed_event_time_seconds", "when the last record arrived", ["topic"], registry=self.registry)

    def sent(self, topic: str, arrival_ms: int) -> None:
        self.records.labels(topic).inc()
        self.time.labels(topic).set(arrival_ms / 1000)


class QueryMetrics(StreamingQueryListener):
    """Metrics of a job's query: Spark's of each batch, and the job's own counts of invalid and late events.

    Spark reports all queries of a session; the job's query has the name of the job.
    """

    def __init__(self, config: JobConfig, job: str) -> None:
        self.config = config
        self.job = job
        self.query_id = ""
        self.registry = CollectorRegistry()
        self.rows = self._counter("input_rows", "rows read")
        self.batches = self._counter("batches", "batches completed")
        self.dead = self._counter("dead_letter_rows", "rows sent to the dead-letter topic", "reason")
        self.late = self._counter("late_events", "events older than the watermark")
        self.lag = self._gauge("lag_records", "records behind the end of the topics, after the last batch")
        self.batch_s = self._gauge("batch_seconds", "duration of the last batch")
        self.rate = self._gauge("processed_rows_per_second", "rate of the last batch")
        self.watermark = self._gauge("watermark_seconds", "event time before which events are late")
        self.state_rows = self._gauge("state_rows", "rows in the state stores")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"spark_job_{name}", help_text, ["job", *labels], registry=self.registry)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"spark_job_{name}", help_text, ["job"], registry=self.registry)

    def onQueryStarted(self, event: Any) -> None:
        if event.name != self.job:
            return
        self.query_id = str(event.id)
        log.info("%s: query %s started", self.job, event.name)

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        if progress.get("name") != self.job:
            return
        lag = lag_records(progress)
        watermark = progress.get("eventTime", {}).get("watermark")
        duration_ms = progress.get("durationMs", {}).get("triggerExecution", 0)
        self.rows.labels(self.job).inc(progress["numInputRows"])
        self.batches.labels(self.job).inc()
        self.lag.labels(self.job).set(lag)
        self.batch_s.labels(self.job).set(duration_ms / 1000)
        self.rate.labels(self.job).set(progress.get("processedRowsPerSecond") or 0)
        self.state_rows.labels(self.job).set(sum(o["numRowsTotal"] for o in progress.get("stateOperators", ())))
        log.info(
            "%s: batch %d: %d rows in %d ms, %d records behind%s",
            self.job,
            progress["batchId"],
            progress["numInputRows"],
            duration_ms,
            lag,
            f", watermark {watermark}" if watermark else "",
        )

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        if str(event.id) == self.query_id:
            log.info("%s: query %s", self.job, "failed" if event.exception else "ended")


def lag_records(progress: dict[str, Any]) -> int:
    """Return how many records of the topics are after the batch's end offsets."""
    lag = 0
    for source in progress.get("sources", ()):
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            continue
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                lag += max(0, offset - end.get(topic, {}).get(partition, 0))
    return lag
