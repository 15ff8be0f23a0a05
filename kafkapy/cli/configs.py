"""`kafkapy configs describe|alter|explain`: configs of topics, brokers and groups.

Cluster-wide broker defaults cannot be changed here: librdkafka requires a resource name. Use Kafka's kafka-configs.sh
(--entity-default).
"""

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
from kafkapy.cli.config_hints import hint
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail
from kafkapy.cli.options import takes
from kafkapy.cli.output import print_json, print_table, screen_width
from kafkapy.cli.overview import GROUPS
from kafkapy.dataclass import dataclass

app = typer.Typer(help=GROUPS["configs"], no_args_is_help=True)

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="The topic whose configs are meant.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="ID", help="The broker whose configs are meant.")]
Group = Annotated[str | None, typer.Option("--group", "-g", help="The consumer group whose configs are meant.")]

SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "static", 5: "default", 6: "logger", 7: "subscription", 8: "group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """The arguments and options of `kafkapy configs describe`."""

    topic: Topic = None
    broker: Broker = None
    group: Group = None
    everything: Annotated[bool, typer.Option("--all", help="Show configs at their default, too.")] = False
    with_documentation: Annotated[bool, typer.Option("--explain", help="Say what each config does, too.")] = False
    as_json: AsJson = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@app.command()
@takes(DescribeOptions)
def describe(options: DescribeOptions) -> None:
    """Show the configs that are set, and their sources; with --all those with default values, too."""
    with failures(options.bootstrap_server):
        resource = _resource(options.topic, options.broker, options.group)
        admin = admin_client(options.bootstrap_server, options.client_config)
        _check_broker(admin, options.broker)
        ((_, entries, error),) = outcomes(admin.describe_configs([resource], request_timeout=TIMEOUT_S))
        if error is not None:
            raise typer.Exit(fail(error))
    rows = [_row(entry) for _, entry in sorted(entries.items())]
    shown = [row for row in rows if options.everything or row["source"] != "default"]
    if options.with_documentation:
        _document(resource.restype.value, shown)
    if options.as_json:
        print_json(shown)
        return
    cells = [[row["name"], "(hidden)" if row["is_sensitive"] else row["value"], row["source"]] for row in shown]
    columns = ["CONFIG", "VALUE", "SOURCE"]
    if options.with_documentation:
        columns.append("WHAT IT DOES")
        cells = [[*cell, row["documentation"]] for cell, row in zip(cells, shown, strict=True)]
    print_table(columns, cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterOptions:
    """The arguments and options of `kafkapy configs alter`."""

    topic: Topic = None
    broker: Broker = None
    group: Group = None
    to_set: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set a config; may be repeated, as all of these."),
    ] = None
    to_delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="KEY", help="Remove a config: its default applies again."),
    ] = None
    to_append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Append to a config that is a list.")
    ] = None
    to_subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Remove from a config that is a list.")
    ] = None
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@app.command()
@takes(AlterOptions)
def alter(options: AlterOptions) -> None:
    """Set configs, or take them back to their defaults; all of the changes are made, or none."""
    with failures(options.bootstrap_server):
        changes = [
            *(("SET", key, value) for key, value in parse_settings(options.to_set).items()),
            *(("DELETE", key, None) for key in options.to_delete or ()),
            *(("APPEND", key, value) for key, value in parse_settings(options.to_append).items()),
            *(("SUBTRACT", key, value) for key, value in parse_settings(options.to_subtract).items()),
        ]
        if not changes:
            raise typer.BadParameter("nothing to alter: give --set, --delete, --append or --subtract")
        resource = _resource(options.topic, options.broker, options.group, changes)
        admin = admin_client(options.bootstrap_server, options.client_config)
        _check_broker(admin, options.broker)
        ((_, _, error),) = outcomes(admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))
        if error is not None:
            raise typer.Exit(fail(f"{error}{hint((key, value) for _, key, value in changes)}"))
    print(f"Altered {', '.join(key for _, key, _ in changes)}.")


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key, or a part of keys' names.")],
    as_json: AsJson = False,
) -> None:
    """Say what a key does here: its type, default, range, and whether it may change at run time. Asks no broker."""
    from kafkapy.cli.explained_keys import explained, similar

    found = explained(key)
    if not found:
        raise typer.Exit(fail(f"no key is called {key}, or contains that.{similar(key)}"))
    if as_json:
        print_json([each.as_json() for each in found])
        return
    width = screen_width()
    for each in found:
        print(each.text(width))


def _resource(
    topic: str | None,
    broker: str | None,
    group: str | None,
    changes: list[tuple[str, str, str | None]] | None = None,
) -> Any:
    """Return confluent-kafka's resource. Raises BadParameter unless exactly one is named."""
    kafka_admin = confluent().admin
    types = kafka_admin.ResourceType
    named = [(types.TOPIC, topic), (types.BROKER, broker), (types.GROUP, group)]
    given = [(kind, name) for kind, name in named if name is not None]
    if len(given) != 1:
        raise typer.BadParameter("name one of --topic, --broker, --group")
    entries = [
        kafka_admin.ConfigEntry(key, value, incremental_operation=kafka_admin.AlterConfigOpType[operation])
        for operation, key, value in changes or ()
    ]
    kind, name = given[0]
    return kafka_admin.ConfigResource(kind, name, incremental_configs=entries)


def _check_broker(admin: Any, broker: str | None) -> None:
    """Exit if there is no broker of this id: librdkafka would wait for it. Raises KafkaException."""
    if not broker:
        return
    nodes = admin.describe_cluster(request_timeout=TIMEOUT_S).result(TIMEOUT_S + 5).nodes
    known = sorted(each.id for each in nodes)
    if broker not in map(str, known):
        raise typer.Exit(fail(f"no such broker: {broker}; there are: {', '.join(map(str, known))}"))


def _document(resource_type: int, rows: list[dict[str, Any]]) -> None:
    from kafkapy.config.documentation import documentation_of

    for row in rows:
        row["documentation"] = documentation_of(resource_type, row["name"])


def _row(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES.get(entry.source, "unknown"),
        "is_read_only": bool(entry.is_read_only),
        "is_sensitive": bool(entry.is_sensitive),
    }
