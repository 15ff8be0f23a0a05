"""`kafkapy groups list|describe|explain|reset|delete`; redrive.py has redrive."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.chosen import chosen, confirm, is_pattern, matching, missing
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    AsJson,
    ClientConfig,
    Server,
    failures,
    reachable_properties,
)
from kafkapy.cli.failure import fail, note
from kafkapy.cli.group_offsets import GroupOffsets, lag_of, offset_row, parse_topics
from kafkapy.cli.options import takes
from kafkapy.cli.output import counted, print_json, print_table
from kafkapy.cli.overview import GROUPS
from kafkapy.cli.redrive import redrive_letters
from kafkapy.cli.reset_targets import ResetOptions, targets_of
from kafkapy.errors import first_of

if TYPE_CHECKING:
    from kafkapy.cli.committed_offsets import BrokerConnections
    from kafkapy.cli.consumer_groups import ConsumerGroup
    from kafkapy.cli.group_names import ListedGroup
    from kafkapy.cli.group_offsets import OffsetStore
    from kafkapy.cli.share_explain import PartitionFacts

app = typer.Typer(
    help=GROUPS["groups"],
    no_args_is_help=True,
)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The id of a group.")]
GroupIds = Annotated[
    list[str],
    typer.Argument(metavar="GROUP...", show_default=False, help="The ids of groups, or patterns: 'app-*'."),
]

OFFSET_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST")
SHARE, STREAMS = "Share", "Streams"
SHARE_COLUMNS = ("TOPIC", "PARTITION", "START", "LAG")
TOPICS_SHOWN = 3
"""A line of a terminal; --json has all."""
SUBTOPOLOGY_COLUMNS = ("SUBTOPOLOGY", "TASKS", "READS", "WRITES", "CHANGELOGS")
STREAMS_MEMBER_COLUMNS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PROCESS", "EPOCH", "ACTIVE", "STANDBY", "WARM-UP")
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
        list[str] | None,
        typer.Option("--type", "-t", help="Only groups of this type, classic, consumer, share or streams."),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """List groups with type, state, members, lag and topics."""
    from kafkapy.cli.group_list import facts_of, share_facts_of, streams_facts_of
    from kafkapy.cli.group_names import STATES, TYPES, choice, listed_groups

    try:
        states = [choice(each, STATES) for each in state or ()]
        types = [choice(each, TYPES) for each in kind or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with _brokers(bootstrap_server, client_config) as brokers:
        listed, reasons = listed_groups(brokers, states, types)
        names = matching(pattern, listed) if pattern else sorted(listed)
        facts = facts_of(brokers, [name for name in names if listed[name].type not in (SHARE, STREAMS)])
        facts |= streams_facts_of(brokers, [name for name in names if listed[name].type == STREAMS])
        facts |= share_facts_of(brokers, [name for name in names if listed[name].type == SHARE])
    groups: list[dict[str, Any]] = [
        {"group": name, "type": listed[name].type, "state": listed[name].state, **asdict(facts[name])} for name in names
    ]
    if as_json:
        print_json(groups)
    elif groups or not reasons:  # no empty table if a broker has not listed its groups
        rows = ([*_dashed(list(group.values())[:-1]), _named(group["topics"])] for group in groups)
        print_table(("GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "TOPICS"), rows)
    if reasons:
        raise typer.Exit(fail("; ".join(dict.fromkeys(reasons))))


@contextmanager
def _brokers(server: str, client_config: list[str] | None) -> "Iterator[BrokerConnections]":
    """Yield connections to the brokers of a cluster; turn an error into one line and exit status 1."""
    from kafkapy.cli.committed_offsets import BrokerConnections

    with failures(server), BrokerConnections(reachable_properties(server, client_config)) as brokers:
        yield brokers


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
    from kafkapy.cli.committed_offsets import CoordinatorError
    from kafkapy.cli.group_names import listed_groups

    if every == bool(group_ids):
        raise typer.BadParameter("GROUP..., or --all")
    # What can be described is shown, also if another group cannot: scripts see that by the status.
    status = 0
    described = []
    with _brokers(bootstrap_server, client_config) as brokers:
        for group_id, group_type in _chosen_groups(brokers, group_ids or ["*"]).items():
            try:
                described.append(_describe_one(brokers, group_id, group_type))
            except CoordinatorError as error:
                status = fail(f"{group_id}: {error}")
            except LookupError:
                status = fail(missing("group", group_id, listed_groups(brokers)[0]))
    if as_json:
        print_json(described)
    else:
        for group_facts in described:
            _print_group(group_facts, with_members=members)
    if status:
        raise typer.Exit(status)


def _describe_one(brokers: "BrokerConnections", group_id: str, group_type: str) -> dict[str, Any]:
    """Return the fields that are shown of a group of this type; "" for any type.

    Raises CoordinatorError, and LookupError if there is no such group.
    """
    from kafkapy.cli.consumer_groups import DEAD, describe_consumers
    from kafkapy.cli.group_offsets import CommittedOffsets
    from kafkapy.cli.share_groups import describe_share_group
    from kafkapy.cli.streams_groups import describe_streams_group

    if group_type not in (SHARE, STREAMS):
        group = describe_consumers(brokers, group_id)
        if group.state != DEAD:
            return _described(group, GroupOffsets(brokers, CommittedOffsets(brokers, group_id)))
    for describe_other in (describe_share_group, describe_streams_group):
        other = describe_other(brokers, group_id)
        if other is not None:
            return other
    raise LookupError(group_id)


def _chosen_groups(brokers: "BrokerConnections", given: list[str]) -> dict[str, str]:
    """Return the ids that were given or match a pattern that was, and the type of each, "" where it is not known.

    Exits if a broker does not list its groups.
    """
    if not any(map(is_pattern, given)):
        return dict.fromkeys(given, "")
    listed = _listed(brokers)
    found = [name for each in given for name in (sorted(listed) if each == "*" else _matches(each, listed))]
    return {name: listed[name].type if name in listed else "" for name in found}


def _listed(brokers: "BrokerConnections") -> "dict[str, ListedGroup]":
    """Return all groups by id. Exits if a broker does not list its groups."""
    from kafkapy.cli.group_names import listed_groups

    listed, reasons = listed_groups(brokers)
    if reasons:
        raise typer.Exit(fail("; ".join(dict.fromkeys(reasons))))
    return listed


def _matches(given: str, listed: Collection[str]) -> list[str]:
    found = matching(given, listed) if is_pattern(given) and given not in listed else [given]
    if not found:
        raise typer.Exit(fail(f"no group matches {given}"))
    return found


SharedTopic = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION]", help="Of a share group: only this topic.")
]
SharedOffset = Annotated[
    int | None, typer.Option("--offset", min=0, help="Of a share group: why this record is not delivered.")
]


@app.command("explain")
def explain_group(
    group_id: GroupId,
    topic: SharedTopic = "",
    offset: SharedOffset = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Show why a group last rebalanced (kafkapy brokers only); of a share group also what is in flight, and why; of a
    streams group which tasks no member runs, and why."""
    from kafkapy.cli.committed_offsets import CoordinatorError
    from kafkapy.cli.group_explain import print_rebalances, rebalances_of
    from kafkapy.cli.streams_groups import streams_tasks

    try:
        wanted = parse_topics([topic] if topic else [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with _brokers(bootstrap_server, client_config) as brokers:
        try:
            rebalances = rebalances_of(brokers, group_id)
        except CoordinatorError as error:
            raise typer.Exit(fail(f"{group_id}: {error}")) from error
        facts = _facts_of(brokers, group_id, wanted)
        # Only now is the group's type known.
        if facts is None and (topic or offset is not None):
            raise typer.Exit(fail(f"{group_id} is no share group: --topic and --offset are for those"))
        tasks = None if facts is not None else streams_tasks(brokers, group_id)
    if as_json:
        _print_explained(rebalances, facts, tasks)
        return
    if offset is None:
        print_rebalances(group_id, rebalances)
    if facts is not None:
        from kafkapy.cli.share_explain import print_facts

        print_facts(facts, offset)
    elif tasks is not None:
        _print_idle_tasks(tasks)


def _print_explained(
    rebalances: list[dict[str, Any]], facts: "list[PartitionFacts] | None", tasks: list[dict[str, Any]] | None
) -> None:
    more = {} if facts is None else {"partitions": list(map(asdict, facts))}
    more |= {} if tasks is None else {"tasks": tasks}
    # A list where there is nothing but rebalances, an object else: scripts knew the list before there was more.
    print_json({"rebalances": rebalances, **more} if more else rebalances)


def _facts_of(
    brokers: "BrokerConnections", group_id: str, wanted: dict[str, list[int] | None]
) -> "list[PartitionFacts] | None":
    """Return a share group's records in flight, None for another type. Exits if a wanted partition is not in use."""
    from kafkapy.cli.share_explain import UNKNOWN, share_facts
    from kafkapy.cli.share_groups import member_names

    names = member_names(brokers, group_id)
    if names is None:
        return None
    silent: list[str] = []
    facts = share_facts(brokers, group_id, names, silent)
    for each in silent:
        note(f"what this broker leads is not shown: {each}")
    if facts is None:
        raise typer.Exit(fail(f"{group_id}: {UNKNOWN}"))
    chosen = [each for each in facts if not wanted or _is_wanted(each.topic, each.partition, wanted)]
    if wanted and not chosen:
        raise typer.Exit(fail(f"{group_id}: nobody has fetched {next(iter(wanted))} from its leader since it leads"))
    return chosen


def _is_wanted(topic: str, partition: int, wanted: dict[str, list[int] | None]) -> bool:
    if topic not in wanted:
        return False
    numbers = wanted[topic]
    return numbers is None or partition in numbers


@app.command()
@takes(ResetOptions)
def reset(options: ResetOptions) -> None:
    """Move a group that has no members to other offsets; a share group to other start offsets."""
    targets = targets_of(options)
    with _brokers(options.bootstrap_server, options.client_config) as brokers:
        store, members = _store_of(brokers, options.group_id)
        offsets = GroupOffsets(brokers, store)
        try:
            plan = offsets.plan(targets(offsets))
        except LookupError as error:
            raise typer.Exit(fail(str(error))) from error
        # brokers refuse an outsider's commit while there are members: rather say so than move some partitions
        if options.execute and members:
            raise typer.Exit(fail(f"{options.group_id} has members, stop them first: {', '.join(members)}"))
        if options.execute:
            offsets.commit({partition: after for partition, (_, after) in plan.items()})
    rows = [
        {"topic": name, "partition": partition, "before": before, "after": after}
        for (name, partition), (before, after) in sorted(plan.items())
    ]
    if members and not options.execute:
        note(f"{options.group_id} has members, --execute would be refused until they stop: {', '.join(members)}")
    if options.as_json:
        print_json(rows)
        return
    title = None if options.execute else "Would be done with --execute:"
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), (_dashed(row.values()) for row in rows), title=title)


def _store_of(brokers: "BrokerConnections", group_id: str) -> "tuple[OffsetStore, list[str]]":
    """Return the store of the group's offsets, and its members. Raises CoordinatorError."""
    from kafkapy.cli.consumer_groups import describe_consumers
    from kafkapy.cli.group_offsets import CommittedOffsets
    from kafkapy.cli.share_groups import ShareOffsets, member_names
    from kafkapy.cli.streams_groups import described_group

    members = member_names(brokers, group_id)
    if members is not None:
        return ShareOffsets(brokers, group_id), list(members.values())
    streams_group = described_group(brokers, group_id)
    if streams_group is not None:
        names = [f"{member.client_id} ({member.client_host})" for member in streams_group.members]
        return CommittedOffsets(brokers, group_id), names
    members_of_it = describe_consumers(brokers, group_id).members  # none of a group that does not exist
    return CommittedOffsets(brokers, group_id), [f"{each.client_id} ({each.host})" for each in members_of_it]


@app.command()
def delete(
    group_ids: GroupIds,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only what the groups have of this topic; may be repeated."),
    ] = None,
    is_confirmed: Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")] = False,
    bootstrap_server: Server = DEFAULT_SERVER,
    client_config: ClientConfig = None,
) -> None:
    """Delete groups that have no members, with all that they have committed; or only their offsets of topics.

    Of a pattern, those that match, after a question.
    """
    from kafkapy.cli.committed_offsets import CoordinatorError
    from kafkapy.cli.consumer_groups import delete_group

    # what can be deleted is, also if another group cannot: scripts see that by the status
    status = 0
    with _brokers(bootstrap_server, client_config) as brokers:
        if any(map(is_pattern, group_ids)):
            group_ids = _confirmed(brokers, group_ids, topic, is_confirmed=is_confirmed)
        for group_id in group_ids:
            try:
                if topic:
                    _delete_offsets(brokers, group_id, topic)
                    print(f"Deleted the offsets of group {group_id} for {', '.join(topic)}.")
                else:
                    delete_group(brokers, group_id)
                    print(f"Deleted group {group_id}.")
            except CoordinatorError as error:
                status = fail(f"{group_id}: {error}")
    if status:
        raise typer.Exit(status)


def _confirmed(
    brokers: "BrokerConnections", given: list[str], topics: list[str] | None, *, is_confirmed: bool
) -> list[str]:
    """Return the ids that were given or match a pattern that was, after a question. Exits if the answer is not yes."""
    listed = _listed(brokers)
    if all(each in listed for each in given):  # they only look like patterns
        return given
    group_ids = chosen(given, listed, "group")
    what = f"the offsets of {', '.join(topics)} in " if topics else ""
    lines = (f"{each}  {listed[each].type}, {listed[each].state}" for each in group_ids)
    confirm(lines, f"Delete {what}{counted(len(group_ids), 'group')}?", is_confirmed=is_confirmed)
    return group_ids


def _delete_offsets(brokers: "BrokerConnections", group_id: str, topics: list[str]) -> None:
    """Delete committed offsets of topics, those of a share group, too. Raises CoordinatorError."""
    from kafkapy.cli.committed_offsets import delete_offsets
    from kafkapy.cli.share_groups import ShareOffsets, member_names

    if member_names(brokers, group_id) is not None:
        ShareOffsets(brokers, group_id).delete(topics)
    else:
        delete_offsets(brokers, group_id, topics)


app.command("redrive")(redrive_letters)


def _described(group: "ConsumerGroup", offsets: GroupOffsets) -> dict[str, Any]:
    readers = {
        partition: (member.member_id, member.client_id, member.host)
        for member in group.members
        for partition in member.partitions
    }
    committed = offsets.committed()
    wanted = sorted(set(committed) | set(readers))
    ends = offsets.ends_of_existing(wanted)
    partitions = [offset_row(each, committed.get(each), ends.get(each), readers.get(each)) for each in wanted]
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.address,
        "lag": lag_of(committed, ends),
        "partitions": partitions,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id or None,
                "client": member.client_id,
                "host": member.host,
                "partitions": sum(member_id == member.member_id for member_id, _, _ in readers.values()),
            }
            for member in group.members
        ],
    }


def _print_group(group: dict[str, Any], *, with_members: bool) -> None:
    facts = [
        group["state"],
        group["type"],
        group["assignor"],
        counted(len(group["members"]), "member"),
        "lag unknown" if group["lag"] is None else f"lag {group['lag']}",
    ]
    title = f"{group['group']}  {', '.join(fact for fact in facts if fact)}"
    columns = SHARE_COLUMNS if group["type"] == SHARE else OFFSET_COLUMNS
    print_table(columns, (_dashed(row.values()) for row in group["partitions"]), title=title)
    if group["type"] == STREAMS:
        _print_streams_group(group, with_members=with_members)
    elif with_members:
        print_table(MEMBER_COLUMNS, (_dashed(row.values()) for row in group["members"]))
    print()


def _print_streams_group(group: dict[str, Any], *, with_members: bool) -> None:
    print_table(SUBTOPOLOGY_COLUMNS, map(_joined, group["subtopologies"]), title="Topology")
    if with_members:
        print_table(STREAMS_MEMBER_COLUMNS, map(_joined, group["members"]), title="Members")
    _print_idle_tasks(group["tasks"])


def _joined(row: dict[str, Any]) -> list[object]:
    return _dashed(", ".join(each) if isinstance(each, list) else each for each in row.values())


def _print_idle_tasks(tasks: list[dict[str, Any]]) -> None:
    idle = [each for each in tasks if each["member"] is None]
    if idle:
        print_table(("TASK", "WHY"), ((each["task"], each["why"]) for each in idle), title="Tasks that no member runs")
    else:
        print(f"All {len(tasks)} tasks are run by a member.")


def _dashed(cells: Any) -> list[object]:
    return ["-" if cell in (None, "") else cell for cell in cells]
