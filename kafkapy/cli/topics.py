"""`kafkapy topics create|list|describe|alter|delete`."""

from typing import Annotated, Any

import typer

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
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail
from kafkapy.cli.output import print_json, print_table

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False, help="Names of topics.")]
MAX_PARTITIONS = 100_000
MAX_REPLICAS = 10_000
"""librdkafka's limits."""


def _count_or_default(value: int) -> int:
    """Validate a number of partitions or replicas. Raises BadParameter."""
    if value == -1 or value >= 1:
        return value
    raise typer.BadParameter(f"{value} is not a count: at least 1, or -1 for the broker's default")


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            max=MAX_PARTITIONS,
            callback=_count_or_default,
            help="How many partitions; -1 for the broker's num.partitions.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            max=MAX_REPLICAS,
            callback=_count_or_default,
            help="How many replicas of each; -1 for the broker's default.",
        ),
    ] = -1,
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
        results = list(outcomes(admin.create_topics(requested, request_timeout=TIMEOUT_S)))
    _report(results, "Created topic {}.", ignored="(TOPIC_ALREADY_EXISTS)" if if_not_exists else None)


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="List internal topics, too.")] = False,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """List topics."""
    with failures(bootstrap_server):
        topics = admin_client(bootstrap_server, client_config).list_topics(timeout=TIMEOUT_S).topics
    names = [name for name in sorted(topics) if internal or not name.startswith("__")]
    if as_json:
        print_json([{"topic": name, "partitions": len(topics[name].partitions)} for name in names])
    else:
        print_table(("TOPIC", "PARTITIONS"), ((name, len(topics[name].partitions)) for name in names))


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Names of topics; without, all.")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Show topics: their partitions with leader, replicas and in-sync replicas, and the configs that were set."""
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        wanted = names or sorted(name for name in topics if not name.startswith("__"))
        missing = [name for name in wanted if name not in topics or topics[name].error is not None]
        if missing:
            raise typer.Exit(fail(f"no such topic: {', '.join(missing)}"))
        described = [_described(topics[name], _configs_set(admin, name)) for name in wanted]
    if as_json:
        print_json(described)
        return
    for topic in described:
        configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items())
        rows = [(row["partition"], row["leader"], row["replicas"], row["isr"]) for row in topic["partitions"]]
        title = f"{topic['topic']}  {configs}".rstrip()
        print_table(("PARTITION", "LEADER", "REPLICAS", "ISR"), rows, title=title)


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
    _report(results, f"Topic {{}} has {partitions} partitions.")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail when the topic does not exist.")] = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete topics and their records."""
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        results = list(outcomes(admin.delete_topics(names, request_timeout=TIMEOUT_S)))
    _report(results, "Deleted topic {}.", ignored="(UNKNOWN_TOPIC_OR_PART)" if if_exists else None)


def _report(results: list[tuple[str, Any, str | None]], done: str, *, ignored: str | None = None) -> None:
    """Print results and errors; exit with 1 after an error, unless it ends in `ignored`."""
    status = 0
    for name, _, error in results:
        if error is None:
            print(done.format(name))
        elif ignored is None or not error.endswith(ignored):
            status = fail(f"{name}: {error}")
    if status:
        raise typer.Exit(status)


def _configs_set(admin: Any, name: str) -> dict[str, str]:
    """Return the configs that were set on the topic itself."""
    kafka_admin = confluent().admin
    resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, name)
    entries = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
    own = kafka_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: entry.value for key, entry in sorted(entries.items()) if entry.source == own}


def _described(topic: Any, configs: dict[str, str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition.id,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isrs),
        }
        for _, partition in sorted(topic.partitions.items())
    ]
    return {"topic": topic.topic, "configs": configs, "partitions": partitions}
