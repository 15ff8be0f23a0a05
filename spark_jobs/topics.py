"""Creates topics with the stock client, librdkafka, and turns its errors into those of jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.errors import JobError

TIMEOUT_S = 30.0
CONNECT_S = 10.0


@contextmanager
def client_errors(what: str, key: str) -> Iterator[None]:
    """Turn errors of librdkafka into a JobError that names what, and the key of the options if one is none."""
    try:
        yield
    except KafkaException as error:
        is_option = error.args[0].code() == KafkaError._INVALID_ARG
        hint = f" ({key} takes librdkafka's options, not those of Java's client)" if is_option else ""
        raise JobError(f"{what}: {error.args[0].str()}{hint}") from None


def create_topics(
    client: dict[str, Any],
    topics: list[str],
    partitions: int,
    replication_factor: int = -1,
    config: dict[str, str] | None = None,
) -> None:
    """Create the topics that do not exist; `client`: librdkafka's options.

    Raises JobError when the broker refuses or does not answer.
    """
    admin = AdminClient(client)
    servers = client["bootstrap.servers"]
    try:
        admin.list_topics(timeout=CONNECT_S)
    except KafkaException as error:
        raise JobError(
            f"no broker answers at {servers} ({error.args[0].str()}): is it running, is the address right?"
        ) from None
    wanted = [NewTopic(topic, partitions, replication_factor, config=config or {}) for topic in topics]
    for topic, created in admin.create_topics(wanted, request_timeout=TIMEOUT_S).items():
        try:
            created.result(TIMEOUT_S + 5)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            raise JobError(f"topic {topic} cannot be created on {servers}: {error.args[0].str()}") from None


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    """Create one topic; `config` has the keys of a topic with underscores for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    create_topics({"bootstrap.servers": bootstrap}, [topic], partitions, config=settings)
