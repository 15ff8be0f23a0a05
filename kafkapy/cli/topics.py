"""`kafkapy topics create|list|describe|alter|delete`; topic_changes.py has trim and empty, topic_copy.py copy."""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.chosen import chosen, confirm, is_pattern, matching, missing
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    AsJson,
    ClientConfig,
    Server,
    admin_client,
    confluent,
    failures,
    outcomes,
    parse_settings,
)
from kafkapy.cli.config_hints import hint
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail
from kafkapy.cli.moments import moment_ms
from kafkapy.cli.output import counted, print_json, print_table, shown_bytes, shown_count
from kafkapy.cli.overview import GROUPS
from kafkapy.cli.topic_changes import Patterns, Yes, empty, topic_queries, trim
from kafkapy.cli.topic_copy import copy

if TYPE_CHECKING:
    from kafkapy.cli.topic_changes import Topics
    from kafkapy.cli.topic_facts import TopicFacts

app = typer.Typer(help=GROUPS["topics"], no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False, help="Names of topics.")]
MAX_PARTITIONS = 100_000
MAX_REPLICAS = 10_000
"""librdkafka's limits."""
PARTITION_COLUMNS = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "RECORDS", "SIZE")
MISSING = "(UNKNOWN_TOPIC_OR_PART)"
"""The end of librdkafka's message for an unknown topic."""
Result = tuple[str, Any, str | None]
"""A topic's name, what its future returned, and its error."""


def _count_or_default(value: int) -> int:
    """Validate a number of partitions or replicas. Raises BadParameter."""
    if value == -1 or value >= 1:
        return value
    raise typer.BadParameter(f"{value} is not a count: at least 1, or -1 for the broker's default")


PartitionCount = Annotated[
    int,
    typer.Option(
        "--partitions",
        "-p",
        max=MAX_PARTITIONS,
        callback=_count_or_default,
        help="How many partitions; -1 for the broker's num.partitions.",
    ),
]
ReplicationFactor = Annotated[
    int,
    typer.Option(
        "--replication-factor",
        "-r",
        max=MAX_REPLICAS,
        callback=_count_or_default,
        help="How many replicas of each; -1 for the broker's default.",
    ),
]


@app.command()
def create(
    names: Names,
    partitions: PartitionCount = -1,
    replication_factor: ReplicationFactor = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of the topics; may be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail when the topic exists.")] = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Create topics."""
    settings = parse_settings(config)
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        new_topic = confluent().admin.NewTopic
        requested = [
            new_topic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
            for name in names
        ]
        # One request for all: each topic has its own outcome, and those without an error are created.
        results = list(outcomes(admin.create_topics(requested, request_timeout=TIMEOUT_S)))
    ignored = "(TOPIC_ALREADY_EXISTS)" if if_not_exists else None
    _report(results, "Created topic {}.", ignored=ignored, configs=settings)


@app.command("list")
def list_topics(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", show_default=False, help="Only names that match, as 'orders-*'.")
    ] = "",
    internal: Annotated[bool, typer.Option("--internal", help="List internal topics, too.")] = False,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """List topics with partitions, replicas, records and size, and how many partitions are offline or under-replicated.

    Records are offsets between start and end: compaction and transactions leave fewer. The size is that of one replica
    of each partition, the leader's. Unknown are partitions whose leaders do not answer.
    """
    with topic_queries(bootstrap_server, client_config) as queries:
        # offsets and sizes only of listed topics: each costs requests to leaders
        topics = queries.topics()
        names = sorted(topics) if internal and not pattern else matching(pattern or "*", topics)
        found = [topics[name] for name in names]
        queries.add_offsets(found)
        queries.add_sizes(found)
    if as_json:
        print_json([_row(topic) for topic in found])
        return
    rows = (
        (
            topic.name,
            _noted(str(len(topic.partitions)), topic.offline, "offline"),
            _noted(str(topic.replica_count), topic.under_replicated, "under-replicated"),
            _noted(shown_count(topic.records), topic.unknown, "unknown"),
            shown_bytes(topic.size_bytes),
        )
        for topic in found
    )
    print_table(("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"), rows)


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Names of topics, or patterns; without, all.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Show the first offset of this time, too: -1h, 2026-01-31T12:00Z."),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Show the partitions of topics with leader, replicas, offsets and size, and the configs that were set."""
    try:
        at_ms = None if at is None else moment_ms(at, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(f"--at: {error}") from error
    with topic_queries(bootstrap_server, client_config) as queries:
        topics = queries.topics()
        # A pattern that matches nothing is an error; a cluster without topics is not.
        wanted = chosen(names or ["*"], topics, "topic") if names or topics else []
        found = [topics[name] for name in wanted]
        queries.add_offsets(found)
        if at_ms is not None:
            _add_offsets_at(queries, found, at_ms)
        queries.add_sizes(found)
        queries.add_configs(found)
    if as_json:
        print_json([_described(topic, with_at=at is not None) for topic in found])
        return
    for topic in found:
        _print_topic(topic, with_at=at is not None)


def _print_topic(topic: "TopicFacts", *, with_at: bool) -> None:
    configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items())
    rows = (
        (
            each.number,
            each.leader if each.leader >= 0 else "none",
            each.replicas,
            each.isr,
            *("-" if number is None else number for number in (each.start, each.end, each.records)),
            shown_bytes(each.size_bytes),
            *(["-" if each.at is None else each.at] if with_at else []),
        )
        for each in topic.partitions
    )
    print_table((*PARTITION_COLUMNS, *(["AT"] if with_at else [])), rows, title=f"{topic.name}  {configs}".rstrip())


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic to change.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=MAX_PARTITIONS, help="The new number of partitions.")
    ],
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Give a topic more partitions (its configs: kafkapy configs alter)."""
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        requested = [confluent().admin.NewPartitions(name, partitions)]
        results = list(outcomes(admin.create_partitions(requested, request_timeout=TIMEOUT_S)))
        known = _known(admin, results)
    _report(results, f"Topic {{}} has {counted(partitions, 'partition')}.", known=known)


@app.command()
def delete(
    names: Patterns,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail when the topic does not exist.")] = False,
    is_confirmed: Yes = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete topics and their records; of a pattern, those that match, after a question."""
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        if any(map(is_pattern, names)):
            found = admin.list_topics(timeout=TIMEOUT_S).topics
            names = chosen(names, found, "topic")
            lines = (f"{name}  {counted(len(found[name].partitions), 'partition')}" for name in names)
            confirm(lines, f"Delete {counted(len(names), 'topic')}?", is_confirmed=is_confirmed)
        results = list(outcomes(admin.delete_topics(names, request_timeout=TIMEOUT_S)))
        known = {} if if_exists else _known(admin, results)
    _report(results, "Deleted topic {}.", ignored=MISSING if if_exists else None, known=known)


app.command()(trim)
app.command()(empty)
app.command()(copy)


def _known(admin: Any, results: list[Result]) -> Collection[str]:
    """Return the names of all topics if an error needs them, for a hint at similar names."""
    is_needed = any(error is not None and error.endswith(MISSING) for _, _, error in results)
    return list(admin.list_topics(timeout=TIMEOUT_S).topics) if is_needed else ()


def _report(
    results: list[Result],
    done: str,
    *,
    ignored: str | None = None,
    known: Collection[str] = (),
    configs: Mapping[str, str] | None = None,
) -> None:
    """Print results and errors; exit with 1 after an error, unless it ends in `ignored`.

    `known`: names of topics; `configs`: those that were requested.
    """
    status = 0
    for name, _, error in results:
        if error is None:
            print(done.format(name))
        elif ignored is None or not error.endswith(ignored):
            is_missing = error.endswith(MISSING)
            status = fail(missing("topic", name, known) if is_missing else f"{name}: {error}{_hint(error, configs)}")
    if status:
        raise typer.Exit(status)


def _hint(error: str, configs: Mapping[str, str] | None) -> str:
    return hint(configs.items()) if configs and error.endswith("(INVALID_CONFIG)") else ""


def _row(topic: "TopicFacts") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": topic.replica_count,
        "offline_partitions": topic.offline,
        "under_replicated_partitions": topic.under_replicated,
        "unknown_partitions": topic.unknown,
        "records": topic.records,
        "size_bytes": topic.size_bytes,
    }


def _noted(count: str, partitions: int, problem: str) -> str:
    """Return a count, and how many partitions have a problem if any have."""
    return f"{count} ({partitions} {problem})" if partitions else count


def _add_offsets_at(queries: "Topics", topics: Collection["TopicFacts"], time_ms: int) -> None:
    offsets = queries.offsets(topics, time_ms)
    for topic in topics:
        for each in topic.partitions:
            offset = offsets.get((topic.name, each.number))
            each.at = each.end if offset == -1 else offset


def _described(topic: "TopicFacts", *, with_at: bool = False) -> dict[str, Any]:
    partitions = [
        {
            "partition": each.number,
            "leader": each.leader,
            "replicas": each.replicas,
            "isr": each.isr,
            "start_offset": each.start,
            "end_offset": each.end,
            "size_bytes": each.size_bytes,
            **({"offset_at": each.at} if with_at else {}),
        }
        for each in topic.partitions
    ]
    return {"topic": topic.name, "configs": topic.configs, "partitions": partitions}
