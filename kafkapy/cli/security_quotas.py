"""`kafkapy security quota list|set|remove`: quotas of users, client ids and IPs, and their defaults. KIP-546, KIP-612.

Uses a connection of our own: librdkafka lacks these requests.
"""

from typing import Annotated, Any, Final

import typer

from kafkapy.cli.client import DEFAULT_SERVER, AsJson, Server
from kafkapy.cli.connected import checked, connected
from kafkapy.cli.options import takes
from kafkapy.cli.output import print_json, print_table
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

quota_app = typer.Typer(
    help="Quotas: bytes and requests of users and client-ids, connections of ips.", no_args_is_help=True
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
"""The protocol's, as kafkapy.metadata.client_quotas has them: its imports take as long as a whole command."""
VERSION: Final = 1
DEFAULT: Final = "(default)"

Entity = dict[str, str | None]
"""Entity names by type; None for the type's default."""

User = Annotated[str | None, typer.Option("--user", "-u", metavar="USER", help="Of a user.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Of each user that has no own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", "-c", metavar="ID", help="Of a client-id.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Of each client-id that has no own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of an address.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Of each address that has no own.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoseQuotas:
    """Whose quotas a command is about, and which server it asks."""

    user: User = None
    user_defaults: UserDefaults = False
    client_id: ClientId = None
    client_defaults: ClientDefaults = False
    ip: Ip = None
    ip_defaults: IpDefaults = False
    bootstrap_server: Server = DEFAULT_SERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(WhoseQuotas):
    """The arguments and options of `kafkapy security quota list`."""

    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions(WhoseQuotas):
    """The arguments and options of `kafkapy security quota set`."""

    quotas: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE...", help="producer_byte_rate=1048576 ...")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOptions(WhoseQuotas):
    """The arguments and options of `kafkapy security quota remove`."""

    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA...]", help="Which; without one, all.", show_default=False)
    ] = None


@quota_app.command("list")
@takes(ListOptions)
def list_quotas(options: ListOptions) -> None:
    """List quotas: all, or those that name a user, client-id or address."""
    rows = sorted(
        (
            {"user": _shown(USER, names), "client-id": _shown(CLIENT_ID, names), "ip": _shown(IP, names), **quota}
            for names, quotas in _described(options.bootstrap_server, _named(options))
            for quota in ({"quota": key, "value": value} for key, value in quotas.items())
        ),
        key=lambda row: [str(row[column] or "") for column in ("user", "client-id", "ip", "quota")],
    )
    if options.as_json:
        print_json(rows)
    else:
        columns = ("user", "client-id", "ip", "quota", "value")
        shown = ([_number(row[name]) if name == "value" else row[name] for name in columns] for row in rows)
        print_table([column.upper() for column in columns], shown)


@quota_app.command("set")
@takes(SetOptions)
def set_quotas(options: SetOptions) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate of a user, a
    client-id or both; connection_creation_rate of an ip."""
    from kafkapy.protocol.messages.alter_client_quotas_request import OpData

    named = _some(_named(options))
    quotas = list(map(_parsed, options.quotas))
    _alter(options.bootstrap_server, named, [OpData(key, value=value) for key, value in quotas])
    print(f"Set {', '.join(key for key, _ in quotas)}.")


@quota_app.command("remove")
@takes(RemoveOptions)
def remove_quotas(options: RemoveOptions) -> None:
    """Remove quotas of a user, a client-id, both, or an ip."""
    from kafkapy.protocol.messages.alter_client_quotas_request import OpData

    named, server = _some(_named(options)), options.bootstrap_server
    keys = options.quotas or [key for names, found in _described(server, named) if names == named for key in found]
    _alter(server, named, [OpData(key, remove=True) for key in keys])
    print(f"Removed {', '.join(keys) or 'nothing'}.")


def _described(server: str, named: Entity) -> list[tuple[Entity, dict[str, float]]]:
    """Return the entities that have at least these names, with their quotas."""
    from kafkapy.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest

    components = [
        ComponentData(entity_type, match_type=MATCH_DEFAULT if name is None else MATCH_EXACT, match=name)
        for entity_type, name in named.items()
    ]
    with connected(server) as connection:
        found = checked(connection.call(DescribeClientQuotasRequest(components), VERSION))
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in found.entries
    ]


def _alter(server: str, named: Entity, operations: list[Any]) -> None:
    from kafkapy.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData

    entry = EntryData(
        [EntityData(entity_type, entity_name=name) for entity_type, name in named.items()], ops=operations
    )
    with connected(server) as connection:
        for result in connection.call(AlterClientQuotasRequest([entry]), VERSION).entries:
            checked(result)


def _named(whose: WhoseQuotas) -> Entity:
    """Return the entity that the options name, None for the defaults of a type. Raises BadParameter."""
    names: Entity = {}
    for entity_type, name, is_default in (
        (USER, whose.user, whose.user_defaults),
        (CLIENT_ID, whose.client_id, whose.client_defaults),
        (IP, whose.ip, whose.ip_defaults),
    ):
        if name is not None and is_default:
            raise typer.BadParameter(f"either one {entity_type} or the defaults")
        if name is not None or is_default:
            names[entity_type] = name
    return names


def _some(named: Entity) -> Entity:
    if not named:
        raise typer.BadParameter(
            "whose? --user, --client-id, --ip, or --user-defaults, --client-defaults, --ip-defaults"
        )
    return named


def _parsed(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        return key.strip(), float(value if equals else "none")
    except ValueError as error:
        raise typer.BadParameter(f"{quoted(text)} is not QUOTA=NUMBER") from error


def _shown(entity_type: str, names: Entity) -> str | None:
    return (names[entity_type] or DEFAULT) if entity_type in names else None


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)
