"""Admin requests of jobs: partitions, offsets, configs, topics; by the admin client of Spark's connector.

The client runs in the driver's JVM, with the same options as the Kafka source.
"""

import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.config import JobConfig, StreamConfig
from spark_jobs.errors import JobError
from spark_jobs.failures import cause

CONNECT_S, RETRY_S = 15.0, 0.2
REQUEST_MS, API_MS = 30_000, 60_000
"""The first call of a JVM that shares a busy machine took more than 15 seconds."""
ADDRESS = re.compile(r"(?:[a-zA-Z][\w+.-]*://)?\[?([\w.%:-]*)\]?:(\d{1,5})")
"""An address in the syntax of Java's clients."""
RECORDS_TO_DELETE = "org.apache.kafka.clients.admin.RecordsToDelete"
Offsets = dict[tuple[str, int], int]
"""Offsets by (topic, partition)."""


@dataclass(slots=True)
class Admin:
    """An open admin client; errors are JobErrors that name the cluster."""

    jvm: Any
    client: Any
    bootstrap: str

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions by topic. Raises JobError if one does not exist."""
        described = self._result(self.client.describeTopics(self._list(topics)).allTopicNames())
        return {name: described[name].partitions().size() for name in described}

    def topic_names(self) -> set[str]:
        return set(self._result(self.client.listTopics().names()))

    def earliest(self, counts: Mapping[str, int]) -> Offsets:
        return self._offsets(counts, "earliest")

    def latest(self, counts: Mapping[str, int]) -> Offsets:
        return self._offsets(counts, "latest")

    def _offsets(self, counts: Mapping[str, int], which: str) -> Offsets:
        kafka = self.jvm.org.apache.kafka
        wanted = self.jvm.java.util.HashMap()
        for topic, count in counts.items():
            for partition in range(count):
                wanted.put(
                    kafka.common.TopicPartition(topic, partition), getattr(kafka.clients.admin.OffsetSpec, which)()
                )
        found = self._result(self.client.listOffsets(wanted).all())
        return {(where.topic(), where.partition()): found[where].offset() for where in found}

    def delete_records(self, before: Offsets) -> None:
        """Delete each partition's records before an offset."""
        # Py4J takes the class's static beforeOffset(long) for its getter of that name, unless it is called by its id.
        limit = JavaMember("beforeOffset", None, f"{STATIC_PREFIX}{RECORDS_TO_DELETE}", self.jvm._gateway_client)
        wanted = self.jvm.java.util.HashMap()
        for where, offset in before.items():
            wanted.put(self.jvm.org.apache.kafka.common.TopicPartition(*where), limit(offset))
        self._result(self.client.deleteRecords(wanted).all())

    def topic_config(self, topic: str) -> dict[str, str]:
        config = self.jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, topic)
        described = self._result(self.client.describeConfigs(self._list([resource])).all())
        entries = self.jvm.java.util.ArrayList(described[resource].entries())
        return {entry.name(): entry.value() for entry in entries}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create the topic with the cluster's own replication factor. Raises JobError if that fails."""
        none = self.jvm.java.util.Optional.empty()
        count = self.jvm.java.util.Optional.of(partitions)
        settings = self.jvm.java.util.HashMap()
        for key, value in configs.items():
            settings.put(key, value)
        new = self.jvm.org.apache.kafka.clients.admin.NewTopic(topic, count, none).configs(settings)
        self._result(self.client.createTopics(self._list([new])).all())

    def _list(self, items: Iterable[Any]) -> Any:
        result = self.jvm.java.util.ArrayList()
        for item in items:
            result.add(item)
        return result

    def _result(self, future: Any) -> Any:
        try:
            return future.get()
        except Py4JJavaError as error:
            why = cause(str(error))
            if why.startswith("TimeoutException"):
                raise _no_broker(self.bootstrap, why) from None
            raise JobError(f"{self.bootstrap}: {why}") from None


def require_topics(spark: SparkSession, config: StreamConfig) -> None:
    """Raise JobError if one of the topics does not exist, no topic matches the pattern, or no broker answers."""
    matches = matcher(spark, config.topic_pattern) if config.topic_pattern else None
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        names = admin.topic_names()
    if matches is not None and not any(map(matches, names)):
        raise JobError(
            f"no topic of {config.bootstrap_servers} is of the pattern {config.topic_pattern}: create one, or correct "
            f"topic_pattern"
        )
    missing = sorted(set(config.topics) - names)
    if missing:
        raise JobError(
            f"topic {', '.join(missing)} does not exist on {config.bootstrap_servers}: create it, or correct topics"
        )


def matcher(spark: SparkSession, pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a name matches the pattern, by Java's rules."""
    jvm: Any = spark._jvm
    try:
        compiled = jvm.java.util.regex.Pattern.compile(pattern)
    except PySparkException as error:
        raise JobError(f"topic_pattern is no regular expression of Java: {cause(str(error))}") from None
    return lambda name: bool(compiled.matcher(name).matches())


def create_missing_topics(
    spark: SparkSession, config: JobConfig, topics: Iterable[str], partitions: int, configs: Mapping[str, str]
) -> None:
    """Create the topics that do not exist yet."""
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        for topic in sorted(set(topics) - admin.topic_names()):
            admin.create_topic(topic, partitions, configs)


@contextmanager
def open_admin(spark: SparkSession, bootstrap: str, options: Mapping[str, str]) -> Iterator[Admin]:
    """Connect with the Kafka client's options (security.protocol, ...). Raises JobError if they are refused."""
    patience_ms = options.get("default.api.timeout.ms", "")
    require_reachable(bootstrap, int(patience_ms) / 1000 if patience_ms.isdigit() else CONNECT_S)
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for key, value in {**with_timeouts(options), "bootstrap.servers": bootstrap}.items():
        properties.setProperty(key, value)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        raise JobError(f"{bootstrap}: {cause(str(error))}") from None
    try:
        yield Admin(jvm, client, bootstrap)
    finally:
        client.close()


def with_timeouts(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with both time-outs: Java's client refuses a default.api.timeout.ms below request.timeout.ms."""
    request_ms, api_ms = (options.get(key, "") for key in ("request.timeout.ms", "default.api.timeout.ms"))
    return {
        "request.timeout.ms": str(min(int(api_ms), REQUEST_MS) if api_ms.isdigit() else REQUEST_MS),
        "default.api.timeout.ms": str(max(int(request_ms), API_MS) if request_ms.isdigit() else API_MS),
        **options,
    }


def require_reachable(bootstrap: str, timeout_s: float) -> None:
    """Raise JobError if none of the addresses accepts a connection in time: Java's client would try for longer.

    Addresses that cannot be parsed are left to Java's client, whose message says what is wrong.
    """
    addresses = [match.groups() for one in bootstrap.split(",") if (match := ADDRESS.fullmatch(one.strip()))]
    end_s, why = time.monotonic() + timeout_s, ""
    while addresses:
        for host, port in addresses:
            try:
                socket.create_connection((host, int(port)), max(1.0, end_s - time.monotonic())).close()
                return
            except (OSError, OverflowError, UnicodeError) as error:
                why = str(error)
        if time.monotonic() > end_s:
            raise _no_broker(bootstrap, why)
        time.sleep(RETRY_S)


def _no_broker(bootstrap: str, why: str) -> JobError:
    return JobError(
        f"no broker answers at {bootstrap} ({why}): is it running, is the address right, do the security options under "
        f"kafka fit it?"
    )
