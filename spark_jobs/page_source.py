"""The input of the live page: the topics, by a stock consumer without a group, and the jobs' own metrics.

There are two threads: one reads records, one requests end offsets and metrics once a second. Topics that do not exist
yet are tried again. Bars are read from their first record, order books from the last BOOK_RECORDS of a partition, which
should include a snapshot, ticks from the end. So is a topic that was deleted and made again, which its id tells (Kafka
2.8 and newer); what was read of the one before is forgotten.
"""

import logging
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, Final
from urllib.request import urlopen

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from spark_jobs.events import SENT_NS
from spark_jobs.market_state import MarketState, whole

log = logging.getLogger("spark_jobs")
BOOK_RECORDS: Final = 3_000
TIMEOUT_S: Final = 5.0
EVERY_S: Final = 1.0
LARGEST_METRICS: Final = 1 << 20
SILENT: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
"""Errors of librdkafka without a broker's answer; another one is that a topic was deleted just now."""
JOB_METRICS: Final = {
    "spark_job_input_rows_total": "rows",
    "spark_job_lag_records": "lag",
    "spark_job_late_events_total": "late",
    "spark_job_dead_letter_rows_total": "dead",
    "spark_job_batch_seconds": "batch_s",
}


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that a page reads, and those whose number of records it shows."""

    bars: str
    depth: str
    ticks: str
    counted: tuple[str, ...]
    sources: tuple[str, ...]
    """The topics of which the ticks are made, for their lag."""

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.bars, self.depth, self.ticks)))

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.counted, *self.sources, *self.read)))


@dataclass(slots=True)
class Facts:
    """End offsets and metrics, as requested once a second."""

    records: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, float]] = field(default_factory=dict)
    ticks_behind: int | None = None
    is_answered: bool = True
    """Whether a broker has answered the last request."""


class PageSource:
    """Reads the topics until it is closed. `lock` guards state and facts."""

    def __init__(self, client: Mapping[str, Any], topics: Topics, metrics: tuple[str, ...]) -> None:
        self.topics = topics
        self.metrics = metrics
        self.lock = threading.Lock()
        self.state = MarketState()
        self.facts = Facts()
        self._stop = threading.Event()
        settings = {"group.id": "page", "enable.auto.commit": False, "isolation.level": "read_committed"}
        quiet: dict[str, Any] = {"error_cb": lambda _error: None, "log_level": 0}
        own = {**settings, "fetch.wait.max.ms": 100, **quiet, **client}
        self._consumer, self._counter = Consumer(own), Consumer(own)
        self._admin = AdminClient({**quiet, **client})
        self._ids: dict[str, str] = {}
        self._made_again: set[str] = set()
        targets = (self._read, self._count)
        self._threads = [threading.Thread(target=each, name=f"page-{each.__name__}") for each in targets]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    # -- records ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        found: set[str] = set()
        look_at_s = 0.0
        try:
            while not self._stop.is_set():
                found -= self._forget_made_again()
                wanted = set(self.topics.read)
                if found < wanted and time.monotonic() >= look_at_s:
                    look_at_s = time.monotonic() + EVERY_S
                    found |= self._assign(wanted - found)
                messages = self._consumer.consume(1_000, 0.1) if found else self._wait()
                with self.lock:
                    for message in messages:
                        if message.error() is None:
                            self._apply(message)
        finally:
            self._consumer.close()

    def _forget_made_again(self) -> set[str]:
        """Return the topics that were made again. Forget what was read of them, and read them no longer."""
        with self.lock:
            topics, self._made_again = self._made_again, set()
            if self.topics.bars in topics:
                self.state.forget_bars()
            if self.topics.depth in topics:
                self.state.forget_books()
            self.state.forget_sources(topics)
        gone = [place for place in self._consumer.assignment() if place.topic in topics] if topics else []
        if gone:
            self._consumer.incremental_unassign(gone)
        return topics

    def _wait(self) -> list[Message]:
        self._stop.wait(0.2)
        return []

    def _assign(self, topics: set[str]) -> set[str]:
        """Assign the topics that exist to the consumer; return them."""
        try:
            known = self._consumer.list_topics(timeout=TIMEOUT_S).topics
            there = {topic for topic in topics if topic in known and known[topic].error is None}
            ids = self._topic_ids(there)  # before their offsets: those of a topic that is made after this are another's
            starts = [self._start(topic, number) for topic in sorted(there) for number in known[topic].partitions]
        except KafkaException:
            return set()
        if starts:
            self._consumer.incremental_assign(starts)
        with self.lock:
            self._ids |= ids
        return there

    def _start(self, topic: str, number: int) -> TopicPartition:
        first, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
        starts = {self.topics.bars: first, self.topics.depth: max(first, end - BOOK_RECORDS), self.topics.ticks: end}
        return TopicPartition(topic, number, starts[topic])

    def _apply(self, message: Message) -> None:
        topic, value = message.topic(), message.value()
        if topic == self.topics.bars and value is not None:
            self.state.apply_bar(value)
        elif topic == self.topics.depth:
            self.state.apply_depth(message.key(), value)
        elif topic == self.topics.ticks:
            now_ns = time.time_ns()
            headers: dict[str, Any] = dict(message.headers() or ())
            sent_ns, source = whole(headers.get(SENT_NS) or b""), headers.get("source") or b""
            latency_ms = (now_ns - sent_ns) / 1e6 if sent_ns is not None else None
            self.state.apply_tick(source.decode("utf-8", "replace"), latency_ms, now_ns // 1_000_000)

    # -- once a second ----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                try:
                    facts = self._ask()
                except KafkaException as error:
                    facts = replace(self.facts, is_answered=error.args[0].code() not in SILENT)
                with self.lock:
                    self.facts = facts
        finally:
            self._counter.close()

    def _ask(self) -> Facts:
        known = self._counter.list_topics(timeout=TIMEOUT_S).topics
        ends: dict[tuple[str, int], tuple[int, int]] = {
            (topic, number): self._counter.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
            for topic in self.topics.all
            if topic in known and known[topic].error is None
            for number in known[topic].partitions
        }
        self._look_for_new_ids({topic for topic, _ in ends})
        records: dict[str, int] = {}
        for (topic, _), (first, end) in ends.items():
            records[topic] = records.get(topic, 0) + end - first
        with self.lock:
            at = dict(self.state.next_offsets)
        sources = {where: edges for where, edges in ends.items() if where[0] in self.topics.sources}
        behind = sum(max(0, end - at.get(where, first)) for where, (first, end) in sources.items()) if at else None
        return Facts(records, {**self.facts.jobs, **self._jobs()}, behind)

    def _look_for_new_ids(self, topics: set[str]) -> None:
        """Note the topics whose id is another than before."""
        ids = self._topic_ids(topics)
        with self.lock:
            for topic, topic_id in ids.items():
                if self._ids.setdefault(topic, topic_id) != topic_id:
                    self._ids[topic] = topic_id
                    self._made_again.add(topic)

    def _topic_ids(self, topics: set[str]) -> dict[str, str]:
        """Return the id of each topic that is there."""
        ids: dict[str, str] = {}
        if topics:
            asked = TopicCollection(sorted(topics))
            for topic, described in self._admin.describe_topics(asked, request_timeout=TIMEOUT_S).items():
                with suppress(KafkaException):  # it may have been deleted just now
                    ids[topic] = str(described.result().topic_id)
        return ids

    def _jobs(self) -> dict[str, dict[str, float]]:
        """Return the values of each job's /metrics, by the job's name; of a job that has ended, the last ones."""
        jobs: dict[str, dict[str, float]] = {}
        for url in self.metrics:
            try:
                with urlopen(url, timeout=TIMEOUT_S) as response:
                    text = response.read(LARGEST_METRICS).decode()
                families = list(text_string_to_metric_families(text))
            except (OSError, HTTPException, ValueError, IndexError):  # the last one is of its parser
                continue
            for sample in (sample for family in families for sample in family.samples):
                name = JOB_METRICS.get(sample.name)
                if name is not None and math.isfinite(sample.value):
                    job = jobs.setdefault(sample.labels.get("job", "?"), dict.fromkeys(JOB_METRICS.values(), 0.0))
                    job[name] += sample.value
        return jobs
