"""`kafkapy topics trim|empty`: deletes the records of topics before an offset or a time, or all of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.cli.chosen import chosen, confirm
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    ClientConfig,
    Server,
    confluent,
    failures,
    reachable_properties,
)
from kafkapy.cli.failure import fail
from kafkapy.cli.moments import FORMS, moment_ms
from kafkapy.cli.output import counted
from kafkapy.errors import quoted

if TYPE_CHECKING:  # its messages are imported when a command runs
    from kafkapy.cli.committed_offsets import Partition
    from kafkapy.cli.librdkafka_topics import LibrdkafkaTopics
    from kafkapy.cli.topic_facts import TopicFacts, TopicQueries

    Topics = TopicQueries | LibrdkafkaTopics

Patterns = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", show_default=False, help="Names of topics, or patterns: 'orders-*'.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")]
LATEST = "latest"


@contextmanager
def topic_queries(server: str, settings: list[str] | None) -> "Iterator[Topics]":
    """Yield an object for requests about topics; turn an error into one line and exit status 1."""
    from kafkapy.cli.client_security import is_of_librdkafka_alone
    from kafkapy.cli.committed_offsets import BrokerConnections
    from kafkapy.cli.librdkafka_topics import LibrdkafkaTopics
    from kafkapy.cli.topic_facts import TopicQueries

    with failures(server):
        properties = reachable_properties(server, settings)
        if is_of_librdkafka_alone(properties):
            yield LibrdkafkaTopics(confluent().admin.AdminClient(properties))
            return
        with BrokerConnections(properties) as brokers:
            yield TopicQueries(brokers)


def trim(
    names: Patterns,
    before: Annotated[
        str,
        typer.Option("--before", metavar="OFFSET|TIME", help="An offset, latest, 2026-01-31T12:00:00Z, or -7d: ago."),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Of this partition; may be repeated. Without, of all."),
    ] = None,
    is_confirmed: Yes = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete the records of topics that are older than an offset or a time, after a question."""
    if before != LATEST and not before.isdecimal():
        try:
            moment_ms(before, 0)
        except ValueError:
            raise typer.BadParameter(f"{quoted(before)} is none of: an offset, latest, {FORMS}") from None
    with topic_queries(bootstrap_server, client_config) as queries:
        _delete(queries, names, before, partition, is_confirmed=is_confirmed)


def empty(
    names: Patterns,
    is_confirmed: Yes = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete all records of topics, after a question; the topics stay, and offsets go on where they are."""
    with topic_queries(bootstrap_server, client_config) as queries:
        _delete(queries, names, LATEST, None, is_confirmed=is_confirmed)


def _delete(
    queries: "Topics", names: list[str], before: str, partitions: list[int] | None, *, is_confirmed: bool
) -> None:
    """Show the records to delete, ask, delete them and report the result."""
    topics = queries.topics()
    found = [topics[name] for name in chosen(names, topics, "topic")]
    for topic in found:
        missing = sorted(set(partitions or ()) - {each.number for each in topic.partitions})
        if missing:
            raise typer.Exit(fail(f"{topic.name} has no partition {', '.join(map(str, missing))}"))
        topic.partitions = [each for each in topic.partitions if not partitions or each.number in partitions]
    # The offsets are read now, so that exactly the confirmed records are deleted, whatever is appended meanwhile.
    queries.add_offsets(found)
    wanted = _goals(queries, found, before)
    going = {
        (topic.name, each.number): goal - each.start
        for topic in found
        for each in topic.partitions
        if (goal := wanted.get((topic.name, each.number))) is not None and each.start is not None and goal > each.start
    }
    _warn_of_unknown(found)
    if not going:
        print("No record is to be deleted.")
        return
    lines = (
        f"{name}-{number}  {counted(count, 'record')} before offset {wanted[name, number]}"
        for (name, number), count in going.items()
    )
    confirm(lines, f"Delete {counted(sum(going.values()), 'record')}?", is_confirmed=is_confirmed)
    status = 0
    for (name, number), error in queries.delete_records(found, {each: wanted[each] for each in going}):
        if error is None:
            print(f"Deleted {counted(going[name, number], 'record')} of {name}-{number}.")
        else:
            status = fail(f"{name}-{number}: {error}")
    if status:
        raise typer.Exit(status)


def _goals(queries: "Topics", topics: "list[TopicFacts]", before: str) -> "dict[Partition, int]":
    """Return by partition the offset before which records are deleted; none if its leader does not answer."""
    ends = {
        (topic.name, each.number): each.end for topic in topics for each in topic.partitions if each.end is not None
    }
    if before == LATEST:
        return ends
    if before.isdecimal():
        return {each: min(int(before), end) for each, end in ends.items()}
    found = queries.offsets(topics, moment_ms(before, int(time.time() * 1000)))
    return {each: found[each] if found[each] >= 0 else end for each, end in ends.items() if each in found}


def _warn_of_unknown(topics: "list[TopicFacts]") -> None:
    silent = [f"{topic.name}-{each.number}" for topic in topics for each in topic.partitions if each.end is None]
    if silent:
        fail(f"no leader answers for {', '.join(silent)}: nothing of them is deleted")
