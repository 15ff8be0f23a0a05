"""`kafkapy topics copy`: copies the records of a topic to another one, each to the partition of its number."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.chosen import chosen
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    ClientConfig,
    Server,
    admin_client,
    client_properties,
    confluent,
    outcomes,
    with_java_defaults,
)
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import INTERRUPTED, fail, note
from kafkapy.cli.interrupt import sigterm_as_interrupt
from kafkapy.cli.options import takes
from kafkapy.cli.output import counted
from kafkapy.cli.progress import Progress
from kafkapy.cli.sender import FLUSH_S, INTERRUPTED_FLUSH_S, Sender
from kafkapy.cli.topic_changes import topic_queries
from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.cli.topic_changes import Topics
    from kafkapy.cli.topic_facts import TopicFacts

RECORDS_AT_ONCE = 500
"""Records that are polled and produced between two updates of the progress."""
POLL_S = 0.2
"""How long Ctrl-C may be delayed: librdkafka's poll is not interruptible."""
SILENCE_S = 30.0
"""A copy fails if no record comes for so long, although some are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The arguments and options of `kafkapy topics copy`."""

    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="The topic to read.")]
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", show_default=False, help="The topic to write; made like SOURCE if missing."),
    ]
    append: Annotated[bool, typer.Option("--append", help="Write to a TARGET that has records already.")] = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(CopyOptions)
def copy(options: CopyOptions) -> None:
    """Copy the records that a topic has now to another topic: keys, values, headers, times and partitions.

    A missing TARGET gets the partitions, replicas and configs of SOURCE. Offsets and transactions are not copied:
    records of open and aborted transactions are left out.
    """
    with topic_queries(options.bootstrap_server, options.client_config) as queries:
        source = _source(queries, options)
        kafka = confluent()
        consumer = kafka.Consumer(_consumer_properties(options))
        producing = client_properties(options.bootstrap_server, options.client_config, acks="all", linger_ms=5)
        sender = Sender(kafka.Producer(with_java_defaults(producing)), options.target)
        total = source.records or 0
        try:
            with sigterm_as_interrupt(), Progress("records copied", total) as progress:
                _copy(kafka, consumer, sender, source, progress)
                sender.finish(FLUSH_S)
        except KeyboardInterrupt as error:
            sender.finish(INTERRUPTED_FLUSH_S)
            note(f"interrupted: {_summary(sender, options)}")
            raise typer.Exit(INTERRUPTED) from error
        finally:
            consumer.close()
    if sender.failures:
        raise typer.Exit(fail(f"{_summary(sender, options)} The first: {sender.failures[0]}"))
    print(_summary(sender, options))


def _summary(sender: Sender, options: CopyOptions) -> str:
    return sender.summary("Copied", f" of {options.source}")


def _consumer_properties(options: CopyOptions) -> dict[str, Any]:
    return client_properties(
        options.bootstrap_server,
        options.client_config,
        group_id="kafkapy-copy",
        enable_auto_commit=False,
        fetch_queue_backoff_ms=10,
        isolation_level="read_committed",
        enable_partition_eof=True,
    )


def _source(queries: "Topics", options: CopyOptions) -> "TopicFacts":
    """Return the source with its offsets; create a missing target. Exits if the target does not fit."""
    topics = queries.topics()
    names = chosen([options.source], topics, "topic")
    if len(names) > 1:
        raise typer.Exit(fail(f"{options.source} matches {len(names)} topics: name one"))
    name, source = names[0], topics[names[0]]
    target = topics.get(options.target)
    if target is source:
        raise typer.Exit(fail(f"{name} would be copied to itself"))
    queries.add_offsets([source, *([target] if target is not None else [])])
    if target is None:
        queries.add_configs([source])
        _create(source, options)
    elif len(target.partitions) < len(source.partitions):
        raise typer.Exit(
            fail(
                f"{options.target} has {counted(len(target.partitions), 'partition')}, {name} {len(source.partitions)}"
            )
        )
    elif target.records and not options.append:
        raise typer.Exit(fail(f"{options.target} has records already: --append adds to them"))
    return source


def _create(source: "TopicFacts", options: CopyOptions) -> None:
    admin = admin_client(options.bootstrap_server, options.client_config)
    configs = {key: value for key, value in source.configs.items() if value is not None}
    new = confluent().admin.NewTopic(options.target, len(source.partitions), source.replica_count, config=configs)
    ((_, _, error),) = outcomes(admin.create_topics([new], request_timeout=TIMEOUT_S))
    if error is not None:
        raise typer.Exit(fail(f"{options.target}: {error}"))


def _copy(kafka: Any, consumer: Any, sender: Sender, source: "TopicFacts", progress: Progress) -> None:
    """Copy the records before the ends of the partitions. Raises KafkaException; exits if a partition is silent."""
    ends = {each.number: each.end for each in source.partitions if each.end is not None and each.records}
    consumer.assign([kafka.TopicPartition(source.name, each, kafka.OFFSET_BEGINNING) for each in ends])
    copied, last_s = 0, time.monotonic()
    while ends:
        messages = consumer.consume(RECORDS_AT_ONCE, POLL_S)
        if messages:
            last_s = time.monotonic()
        elif time.monotonic() - last_s > SILENCE_S:
            sender.finish(FLUSH_S)
            left = ", ".join(map(str, ends))
            raise typer.Exit(
                fail(f"nothing came from partition {left} for {SILENCE_S:g} s; {sender.count} records copied")
            )
        for message in messages:
            error = message.error()
            if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                if error.code() != kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is joined
                    raise kafka.KafkaException(error)
                continue
            partition = message.partition()
            end = ends.get(partition)
            if end is None:
                continue
            if error is None and message.offset() < end:
                sender.send(_record(message))
                copied += 1
            if error is not None or message.offset() + 1 >= end:
                del ends[partition]
        progress.show(copied)


def _record(message: Any) -> dict[str, Any]:
    """Return the arguments of a Producer's produce(). librdkafka takes the timestamp 0 for now."""
    kind, timestamp_ms = message.timestamp()
    return {
        "partition": message.partition(),
        "key": message.key(),
        "value": message.value(),
        "headers": message.headers() or [],
        **({"timestamp": timestamp_ms} if kind and timestamp_ms >= 0 else {}),
    }
