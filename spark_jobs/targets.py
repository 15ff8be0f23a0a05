"""What a job asks of the brokers before it starts, by the Java client that Spark uses, with the job's own options."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.config import JobConfig
from spark_jobs.errors import JobError
from spark_jobs.failures import told
from spark_jobs.source import client_options

TIMEOUT_MS = 15_000


@contextmanager
def admin_client(spark: SparkSession, config: JobConfig) -> Iterator[Any]:
    """Hold a Java admin client. Raises JobError in one line where the broker does not answer or refuses."""
    jvm = spark._jvm
    properties = jvm.java.util.Properties()
    options = {"default.api.timeout.ms": str(TIMEOUT_MS), "request.timeout.ms": str(TIMEOUT_MS)}
    options |= {key.removeprefix("kafka."): value for key, value in client_options(config).items()}
    for key, value in options.items():
        properties.setProperty(key, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            yield admin
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(1))
    except Py4JJavaError as error:
        raise JobError(told(error, config)) from error


def require_topics(spark: SparkSession, config: JobConfig, topics: list[str]) -> None:
    """Raise JobError where a topic is missing or no broker answers."""
    with admin_client(spark, config) as admin:
        missing = set(topics) - set(admin.listTopics().names().get())
    if missing:
        names = ", ".join(sorted(missing))
        raise JobError(f"topic {names} does not exist on {config.bootstrap_servers}: create it, or correct the name")


def create_missing_topics(
    spark: SparkSession, config: JobConfig, topics: list[str], partitions: int, settings: Mapping[str, str]
) -> None:
    """Create the topics that are not there yet, with these settings."""
    jvm = spark._jvm
    with admin_client(spark, config) as admin:
        wanted = set(topics) - set(admin.listTopics().names().get())
        new = jvm.java.util.ArrayList()
        for topic in sorted(wanted):
            created = jvm.org.apache.kafka.clients.admin.NewTopic(
                topic, jvm.java.util.Optional.of(partitions), jvm.java.util.Optional.empty()
            )
            new.add(created.configs(dict(settings)))
        if wanted:
            admin.createTopics(new).all().get()
