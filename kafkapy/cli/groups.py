"""`kafkapy groups list|describe|explain|reset|delete`; redrive.py has redrive."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kafkapy.cli.chosen import is_pattern, matching
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    AsJson,
    ClientConfig,
    Server,
    admin_client,
    client_properties,
    confluent,
    failures,
    outcomes,
    reason_of_kafka,
)
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail, note
from kafkapy.cli.group_offsets import OFFSET_INVALID, GroupOffsets, ResetTarget, parse_topics
from kafkapy.cli.output import print_json, print_table
from kafkapy.cli.redrive import redrive_letters
from kafkapy.errors import first_of, quoted

app = typer.Typer(
    help="List, describe, explain and delete groups, reset what they have read, and send dead letters back.",
    no_args_is_help=True,
)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The id of a group.")]
GroupIds = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False, help="The ids of groups.")]

OFFSET_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST")
SHARE = "share"
SHARE_COLUMNS = ("TOPIC", "PARTITION", "START", "LAG")
TOPICS_SHOWN = 3
MEMBER_COLUMNS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")


@app.command("list")
def list_groups(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", show_default=False, help="Only ids that match, as 'app-*'.")
    ] = "",
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="Only groups in this state; may be repeated.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", "-t", help="Only groups of this type, classic, consumer or share.")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """List groups with type, state, members, lag and topics."""
    from kafkapy.cli.committed_offsets import BrokerConnections
    from kafkapy.cli.group_list import facts_of

    kafka = confluent()
    filters: dict[str, Any] = {}
    if state:
        filters["states"] = {_choice(kafka.ConsumerGroupState, each) for each in state}
    kinds = [each for each in kind or () if each.lower() != SHARE]
    if kinds:
        filters["types"] = {_choice(kafka.ConsumerGroupType, each) for each in kinds}
    properties = client_properties(bootstrap_server, client_config)
    with failures(bootstrap_server), BrokerConnections(properties) as brokers:
        admin = admin_client(bootstrap_server, client_config)
        listed, reasons = _listed(admin, bootstrap_server, **filters) if kinds or not kind else ({}, [])
        names = matching(pattern, listed) if pattern else sorted(listed)
        facts = facts_of(admin, brokers, names)
        shares = [] if kind and len(kinds) == len(kind) else _share_groups(brokers, pattern, state or ())
    groups: list[dict[str, Any]] = [
        {
            "group": name,
            "type": _word(listed[name].type),
            "state": _word(listed[name].state),
            "members": facts[name].members,
            "lag": facts[name].lag,
            "topics": facts[name].topics,
        }
        for name in names
    ]
    groups = sorted(groups + shares, key=lambda each: str(each["group"]))
    if as_json:
        print_json(groups)
    elif groups or not reasons:
        rows = ([*_dashed(list(group.values())[:-1]), _named(group["topics"])] for group in groups)
        print_table(("GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "TOPICS"), rows)
    if reasons:
        raise typer.Exit(fail("; ".join(dict.fromkeys(reasons))))


def _share_groups(brokers: Any, pattern: str, states: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of share groups, which librdkafka does not list; without states, of all of them."""
    from kafkapy.cli.share_groups import describe_share_group, share_group_ids

    wanted = {each.lower() for each in states}
    ids = {name: state for name, state in share_group_ids(brokers).items() if not wanted or state.lower() in wanted}
    found = [describe_share_group(brokers, each) for each in (matching(pattern, ids) if pattern else ids)]
    return [
        {
            **{key: each[key] for key in ("group", "type", "state")},
            "members": len(each["members"]),
            "lag": each["lag"],
            "topics": sorted({partition["topic"] for partition in each["partitions"]}),
        }
        for each in found
        if each is not None
    ]


def _listed(admin: Any, server: str, **filters: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the groups by id, and why some brokers did not list theirs."""
    found = admin.list_consumer_groups(request_timeout=TIMEOUT_S, **filters).result()
    reasons = [reason_of_kafka(error.args[0], server) for error in found.errors]
    return {each.group_id: each for each in found.valid}, reasons


def _named(topics: list[str]) -> str:
    return first_of(topics, TOPICS_SHOWN) or "-"


@app.command()
def describe(
    group_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP...]", show_default=False, help="The ids of groups, or patterns: 'app-*'."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all groups.")] = False,
    members: Annotated[bool, typer.Option("--members", "-m", help="Show the members, too.")] = False,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Show groups: committed offsets and lag of each partition, who reads it; state and members."""
    from kafkapy.cli.committed_offsets import BrokerConnections
    from kafkapy.cli.share_groups import describe_share_group

    if every == bool(group_ids):
        raise typer.BadParameter("GROUP..., or --all")
    status = 0
    described = []
    properties = client_properties(bootstrap_server, client_config)
    with failures(bootstrap_server), BrokerConnections(properties) as brokers:
        admin = admin_client(bootstrap_server, client_config)
        named = _chosen_groups(admin, bootstrap_server, group_ids or ["*"])
        futures = admin.describe_consumer_groups(named, request_timeout=TIMEOUT_S) if named else {}
        for group_id, group, error in outcomes(futures):
            if error is not None or _word(group.state) == "Dead":
                share_group = describe_share_group(brokers, group_id)
                if share_group is not None:
                    described.append(share_group)
                else:
                    status = fail(f"{group_id}: {error or 'no such group'}")
            else:
                described.append(_described(group, GroupOffsets(admin, brokers, group_id)))
    if as_json:
        print_json(described)
    else:
        for group_facts in described:
            _print_group(group_facts, with_members=members)
    if status:
        raise typer.Exit(status)


def _chosen_groups(admin: Any, server: str, given: list[str]) -> list[str]:
    """Return the ids that were given or match a pattern that was. Exits if a broker does not list its groups."""
    if not any(map(is_pattern, given)):
        return given
    listed, reasons = _listed(admin, server)
    if reasons:
        raise typer.Exit(fail("; ".join(dict.fromkeys(reasons))))
    found = [name for each in given for name in (sorted(listed) if each == "*" else _matches(each, listed))]
    return list(dict.fromkeys(found))


def _matches(given: str, listed: dict[str, Any]) -> list[str]:
    found = matching(given, listed) if is_pattern(given) else [given]
    if not found:
        raise typer.Exit(fail(f"no group matches {given}"))
    return found


@app.command("explain")
def explain_group(group_id: GroupId, as_json: AsJson = False, bootstrap_server: Server = DEFAULT_SERVER) -> None:
    """Show why a group last rebalanced, and what each member gained and lost (kafkapy brokers only)."""
    from kafkapy.cli.group_explain import ExplainError, print_rebalances, rebalances_of

    try:
        rebalances = rebalances_of(bootstrap_server, group_id)
    except ExplainError as error:
        raise typer.Exit(fail(f"{group_id}: {error}")) from error
    if as_json:
        print_json(rebalances)
    else:
        print_rebalances(group_id, rebalances)


@app.command()
def reset(
    group_id: GroupId,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:PARTITION,...]", help="The partitions to reset; may be repeated."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="earliest, latest, an offset, +N or -N from where it is, or a time: 2026-01-31T12:00:00Z, -1h.",
        ),
    ],
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the new offsets; without, they are only shown.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Move a group that has no members to other offsets."""
    from kafkapy.cli.committed_offsets import BrokerConnections

    try:
        target = ResetTarget.parse(to)
        requested = parse_topics(topic)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    properties = client_properties(bootstrap_server, client_config)
    with failures(bootstrap_server), BrokerConnections(properties) as brokers:
        admin = admin_client(bootstrap_server, client_config)
        offsets = GroupOffsets(admin, brokers, group_id)
        members = _members_of(admin, group_id)
        try:
            plan = offsets.plan(offsets.partitions_of(requested), target)
        except LookupError as error:
            raise typer.Exit(fail(str(error))) from error
        # brokers refuse an outsider's commit while there are members: rather say so than move some partitions
        if execute and members:
            raise typer.Exit(fail(f"{group_id} has members, stop them first: {', '.join(members)}"))
        if execute:
            offsets.commit({partition: after for partition, (_, after) in plan.items()})
    rows = [
        {"topic": name, "partition": partition, "before": before, "after": after}
        for (name, partition), (before, after) in sorted(plan.items())
    ]
    if members and not execute:
        note(f"{group_id} has members, --execute would be refused until they stop: {', '.join(members)}")
    if as_json:
        print_json(rows)
        return
    title = None if execute else "Would be done with --execute:"
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), (_dashed(row.values()) for row in rows), title=title)


def _members_of(admin: Any, group_id: str) -> list[str]:
    """Return the group's members as `client id (host)`; none for a group that does not exist."""
    (future,) = admin.describe_consumer_groups([group_id], request_timeout=TIMEOUT_S).values()
    return [f"{member.client_id} ({member.host})" for member in future.result().members]


@app.command()
def delete(group_ids: GroupIds, bootstrap_server: Server = DEFAULT_SERVER, client_config: ClientConfig = None) -> None:
    """Delete groups that have no members, with all that they have committed."""
    status = 0
    with failures(bootstrap_server):
        admin = admin_client(bootstrap_server, client_config)
        for group_id, _, error in outcomes(admin.delete_consumer_groups(group_ids, request_timeout=TIMEOUT_S)):
            if error is None:
                print(f"Deleted group {group_id}.")
            else:
                status = fail(f"{group_id}: {error}")
    if status:
        raise typer.Exit(status)


app.command("redrive")(redrive_letters)


def _described(group: Any, offsets: GroupOffsets) -> dict[str, Any]:
    owners = {
        (partition.topic, partition.partition): member
        for member in group.members
        for partition in (member.assignment.topic_partitions if member.assignment is not None else ())
    }
    committed = offsets.committed()
    ends = offsets.ends(set(committed) | set(owners))
    return {
        "group": group.group_id,
        "type": _word(group.type),
        "state": _word(group.state),
        "assignor": group.partition_assignor,
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}" if group.coordinator else None,
        "lag": sum(_lag(committed.get(each), end) or 0 for each, end in ends.items()),
        "partitions": [
            _partition(each, committed.get(each), end, owners.get(each)) for each, end in sorted(ends.items())
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": sum(owner is member for owner in owners.values()),
            }
            for member in group.members
        ],
    }


def _partition(partition: tuple[str, int], committed: int | None, end: int | None, owner: Any) -> dict[str, Any]:
    return {
        "topic": partition[0],
        "partition": partition[1],
        "committed": committed,
        "end": end,
        "lag": _lag(committed, end),
        "member": owner.member_id if owner is not None else None,
        "client": owner.client_id if owner is not None else None,
        "host": owner.host if owner is not None else None,
    }


def _lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(end - committed, 0)


def _print_group(group: dict[str, Any], *, with_members: bool) -> None:
    facts = [
        group["state"],
        group["type"],
        group["assignor"],
        f"{len(group['members'])} members",
        f"lag {group['lag']}",
    ]
    title = f"{group['group']}  {', '.join(fact for fact in facts if fact)}"
    columns = SHARE_COLUMNS if group["type"].lower() == SHARE else OFFSET_COLUMNS
    print_table(columns, (_dashed(row.values()) for row in group["partitions"]), title=title)
    if with_members:
        print_table(MEMBER_COLUMNS, (_dashed(row.values()) for row in group["members"]))
    print()


def _dashed(cells: Any) -> list[object]:
    return ["-" if cell in (None, OFFSET_INVALID) else cell for cell in cells]


def _choice(enumeration: Any, text: str) -> Any:
    """Return the enum member with this name, ignoring case and dashes. Raises BadParameter."""
    wanted = text.replace("-", "").replace("_", "").lower()
    for member in enumeration:
        if member.name.replace("_", "").lower() == wanted:
            return member
    names = ", ".join(_word(member) for member in enumeration if member.name != "UNKNOWN")
    raise typer.BadParameter(f"{quoted(text)} is none of: {names}")


def _word(member: Any) -> str:
    """Return an enum member's name in Kafka's spelling: PREPARING_REBALANCING -> PreparingRebalancing."""
    return "".join(word.capitalize() for word in member.name.split("_"))
