"""`kafkapy security user|acl`: users with SCRAM logins, and their ACLs."""

import secrets
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkapy.cli.client import (
    DEFAULT_SERVER,
    AsJson,
    ClientConfig,
    Server,
    admin_client,
    confluent,
    failures,
    reachable_properties,
)
from kafkapy.cli.connected import checked
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.output import counted, print_json, print_table
from kafkapy.cli.passwords import File, Prompt, password_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding, AclBindingFilter

user_app = typer.Typer(help="Users that log in by SCRAM.", no_args_is_help=True)
acl_app = typer.Typer(help="Who may do what.", no_args_is_help=True)

MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 4096
PASSWORD_BYTES: Final = 18
"""144 random bits: 24 characters of base64 without padding."""

User = Annotated[str, typer.Argument(metavar="USER", show_default=False, help="The user's name.")]
Principal = Annotated[str, typer.Option("--user", "-u", metavar="USER", help="Whom: a user's name, * for everybody.")]
Resource = Annotated[
    list[str],
    typer.Option(
        "--resource",
        "-r",
        metavar="TYPE:NAME",
        help="On what: topic:orders, group:app, topic:log-*, cluster (repeat).",
    ),
]
Operation = Annotated[
    list[str], typer.Option("--operation", "-o", metavar="OPERATION", help="What: read, write, describe, all (repeat).")
]
Deny = Annotated[bool, typer.Option("--deny", help="Deny it rather than allow it.")]
Host = Annotated[str, typer.Option("--host", help="From which address.")]


# -- users ----------------------------------------------------------------------------------------------------------


@user_app.command("add")
def add_user(
    user: User,
    password: Annotated[
        str | None,
        typer.Option("--password", help="Made and shown once if there is none; `ps` shows it.", show_default=False),
    ] = None,
    password_prompt: Prompt = False,
    password_file: File = "",
    mechanism: Annotated[str, typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512.")] = MECHANISM,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Add a user, or give one another password."""
    if not user or password == "":
        raise typer.BadParameter("a user has a name and a password that is not empty: without --password, one is made")
    password = password_of(password, is_prompted=password_prompt, file=password_file)
    given = password if password is not None else secrets.token_urlsafe(PASSWORD_BYTES)
    with failures(bootstrap_server):
        kinds = confluent().admin
        info = kinds.ScramCredentialInfo(_mechanism(mechanism), ITERATIONS)
        _alter(bootstrap_server, client_config, kinds.UserScramCredentialUpsertion(user, info, given.encode()))
    made = f" Its password {given}: it will not be shown again." if password is None else ""
    print(f"Added user {user}.{made}")


@user_app.command("delete")
def delete_user(
    user: User,
    mechanism: Annotated[str, typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512.")] = MECHANISM,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete a user's credential. Existing connections stay."""
    with failures(bootstrap_server):
        deletion = confluent().admin.UserScramCredentialDeletion(user, _mechanism(mechanism))
        _alter(bootstrap_server, client_config, deletion)
    print(f"Deleted user {user}.")


@user_app.command("list")
def list_users(
    as_json: AsJson = False, bootstrap_server: Server = DEFAULT_SERVER, client_config: ClientConfig = None
) -> None:
    """List users with their mechanisms and iterations."""
    with failures(bootstrap_server):
        admin: Any = admin_client(bootstrap_server, client_config)
        described = admin.describe_user_scram_credentials().result(TIMEOUT_S)
    rows = [
        (user, info.mechanism.name.replace("_", "-"), info.iterations)
        for user, found in sorted(described.items())
        for info in found.scram_credential_infos
    ]
    if as_json:
        print_json([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows])
    else:
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


def _alter(server: str, settings: list[str] | None, alteration: Any) -> None:
    admin = admin_client(server, settings)
    for altered in admin.alter_user_scram_credentials([alteration]).values():
        altered.result(TIMEOUT_S)


def _mechanism(name: str) -> Any:
    kinds = confluent().admin.ScramMechanism.__members__
    known = {kind.replace("_", "-"): kinds[kind] for kind in ("SCRAM_SHA_256", "SCRAM_SHA_512")}
    if name.upper() not in known:
        raise typer.BadParameter(f"{name}: choose among {', '.join(known)}")
    return known[name.upper()]


# -- ACLs -----------------------------------------------------------------------------------------------------------


@acl_app.command("add")
def add_acl(
    user: Principal,
    operation: Operation,
    resource: Resource,
    deny: Deny = False,
    host: Host = "*",
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Allow, or deny, operations on a resource."""
    with failures(bootstrap_server):
        bindings = _bindings("AclBinding", user, operation, resource, deny=deny, host=host)
        admin: Any = admin_client(bootstrap_server, client_config)
        for created in admin.create_acls(bindings).values():
            created.result(TIMEOUT_S)
    print(f"Added {counted(len(bindings), 'ACL')} of {user}.")


@acl_app.command("remove")
def remove_acl(
    user: Principal,
    operation: Operation,
    resource: Resource,
    deny: Deny = False,
    host: Host = "*",
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Remove ACLs that were added with the same options."""
    with failures(bootstrap_server):
        filters = _bindings("AclBindingFilter", user, operation, resource, deny=deny, host=host)
        admin: Any = admin_client(bootstrap_server, client_config)
        removed = sum(len(each.result(TIMEOUT_S)) for each in admin.delete_acls(filters).values())
    print(f"Removed {counted(removed, 'ACL')} of {user}.")


@acl_app.command("list")
def list_acls(
    user: Annotated[
        str | None, typer.Option("--user", "-u", metavar="USER", help="Only those of this user; * for everybody's.")
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource",
            "-r",
            metavar="TYPE[:NAME]",
            help="Only those that apply to topic:orders, or to groups: group.",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """List ACLs: all, those of a user, those that apply to a resource, also by a prefix or *."""
    found = _described(bootstrap_server, client_config, _filter(user, resource))
    rows = sorted(_acl_row(each, acl) for each in found for acl in each.acls)
    columns = ("principal", "permission", "operation", "resource", "host")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table([column.upper() for column in columns], rows)


def _acl_row(resource: Any, acl: Any) -> tuple[str, ...]:
    from kafkapy.metadata.acl_types import AclOperation, PatternType, PermissionType, ResourceType

    return (
        acl.principal,
        PermissionType(acl.permission_type).name.lower(),
        AclOperation(acl.operation).name.lower(),
        f"{ResourceType(resource.resource_type).name.lower()}:{resource.resource_name}"
        + ("*" if resource.pattern_type == PatternType.PREFIXED else ""),
        acl.host,
    )


def _filter(user: str | None, resource: str | None) -> Any:
    """Return the request for the ACLs of a user and those that apply to a resource; None: any. Raises BadParameter."""
    from kafkapy.metadata.acl_types import AclOperation, PatternType, PermissionType, ResourceType
    from kafkapy.protocol.messages.describe_acls_request import DescribeAclsRequest
    from kafkapy.server.login.acl_text import AclTextError, parse_resource, principal_of

    kind, name, pattern = ResourceType.ANY, "", PatternType.ANY
    if resource is not None:
        try:
            kind, name, pattern = parse_resource(resource)
        except AclTextError as error:
            raise typer.BadParameter(str(error)) from error
    applying = PatternType.MATCH if pattern == PatternType.LITERAL else pattern
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name or None,
        pattern_type_filter=applying if name else PatternType.ANY,
        principal_filter=None if user is None else principal_of(user),
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )


def _described(server: str, settings: list[str] | None, wanted: Any) -> list[Any]:
    """Return the resources with ACLs. Over our own connection: librdkafka drops the error SECURITY_DISABLED."""
    from kafkapy.cli.committed_offsets import BrokerConnections

    with failures(server), BrokerConnections(reachable_properties(server, settings)) as brokers:
        return list(checked(brokers.call(None, wanted, 2)).resources)


def _bindings(
    kind: str, user: str, operations: list[str], resources: list[str], *, deny: bool, host: str
) -> "list[AclBinding | AclBindingFilter]":
    return [
        _binding(kind, user, operation, resource, deny=deny, host=host)
        for resource in resources
        for operation in operations
    ]


def _binding(
    kind: str, user: str, operation: str, resource: str, *, deny: bool, host: str
) -> "AclBinding | AclBindingFilter":
    from kafkapy.server.login.acl_text import AclTextError, parse_acl

    try:
        acl = parse_acl(f"{'deny' if deny else 'allow'} {user} {operation} {resource}", host=host)
    except AclTextError as error:
        raise typer.BadParameter(str(error)) from error
    kinds = confluent().admin
    resource_types = {2: "TOPIC", 3: "GROUP", 4: "BROKER", 5: "TRANSACTIONAL_ID"}
    if acl.resource_type not in resource_types:
        raise typer.BadParameter(f"{resource}: use topic, group, transactional_id or cluster")
    return getattr(kinds, kind)(  # type: ignore[no-any-return]
        getattr(kinds.ResourceType, resource_types[acl.resource_type]),
        acl.resource_name,
        kinds.ResourcePatternType.PREFIXED if acl.pattern_type == 4 else kinds.ResourcePatternType.LITERAL,
        acl.principal,
        acl.host,
        kinds.AclOperation(acl.operation),
        kinds.AclPermissionType(acl.permission_type),
    )
