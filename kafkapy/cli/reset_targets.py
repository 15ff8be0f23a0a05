"""The new offsets for `groups reset`: one target for all partitions (--to), or an offset each (--from-file)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kafkapy.cli.client import DEFAULT_SERVER, AsJson, ClientConfig, Server
from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.group_offsets import GroupOffsets, Partition, ResetTarget, parse_topics
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

STDIN: Final = "-"
MAX_BYTES: Final = 64 << 20
"""The size of a file with offsets; enough for half a million partitions."""

Targets = Callable[[GroupOffsets], dict[Partition, ResetTarget]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions:
    """The arguments and options of `kafkapy groups reset`."""

    group_id: Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The id of a group.")]
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION,...]",
            help="The partitions to reset; may be repeated. Without, all that it has offsets of.",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="earliest, latest, an offset, +N or -N from where it is, or a time: 2026-01-31T12:00:00Z, -1h.",
        ),
    ] = None
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="To offsets that were kept: of groups describe --json, or TOPIC,PARTITION,OFFSET lines. - for stdin.",
        ),
    ] = None
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the new offsets; without, they are only shown.")
    ] = False
    as_json: AsJson = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


def targets_of(options: ResetOptions) -> Targets:
    """Return a function that finds the targets; it raises as GroupOffsets. Raises BadParameter, exits."""
    topics, to, file = options.topic, options.to, options.from_file
    if (to is None) == (file is None) or (file is not None and topics):
        raise typer.BadParameter("--to, for the partitions of --topic or for all, or --from-file: give one of them")
    if file is not None:
        return _of_file(options.group_id, file)
    try:
        target, requested = ResetTarget.parse(to or ""), parse_topics(topics or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if requested:
        return lambda offsets: dict.fromkeys(offsets.partitions_of(requested), target)
    return lambda offsets: dict.fromkeys(_begun(options.group_id, offsets), target)


def _begun(group_id: str, offsets: GroupOffsets) -> list[Partition]:
    """Return the partitions that a group has offsets of. Raises LookupError without any."""
    found = sorted(offsets.committed())
    if not found:
        raise LookupError(f"{group_id} has no offsets: --topic names the partitions to begin with")
    return found


def _of_file(group_id: str, file: str) -> Targets:
    """Return a function that maps the partitions in the file to its offsets. Raises BadParameter, exits."""
    try:
        kept = offsets_of_file(_text_of(file), group_id)
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}") from error
    except OSError as error:
        raise typer.Exit(fail(reason_of(error))) from error

    def find(offsets: GroupOffsets) -> dict[Partition, ResetTarget]:
        numbers: dict[str, list[int]] = {}
        for topic, number in kept:
            numbers.setdefault(topic, []).append(number)
        offsets.partitions_of(numbers)  # raises LookupError if a partition does not exist
        return {each: ResetTarget("offset", offset) for each, offset in kept.items()}

    return find


def _text_of(file: str) -> str:
    """Read the file, or standard input for "-". Raises OSError, ValueError."""
    if file == STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return data.decode()


def offsets_of_file(text: str, group_id: str) -> dict[Partition, int]:
    """Parse what `groups describe --json` prints, or TOPIC,PARTITION,OFFSET lines of kafka-consumer-groups.sh --export.

    group_id: whose offsets are meant if there are several groups. Raises ValueError.
    """
    if text.lstrip()[:1] not in ("[", "{"):
        return dict(_offset_of_line(line) for line in text.splitlines() if line.strip())
    try:
        described = json.loads(text)
        groups = described if isinstance(described, list) else [described]
        of_group = groups[0] if len(groups) == 1 else next(each for each in groups if each["group"] == group_id)
        rows = of_group["partitions"]
        at = {(str(each["topic"]), int(each["partition"])): each[_kind(each)] for each in rows}
        return {partition: int(offset) for partition, offset in at.items() if offset is not None}
    except StopIteration:
        raise ValueError(f"it has several groups, and {group_id} is none of them") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("it is not what `kafkapy groups describe GROUP --json` prints") from None


def _offset_of_line(line: str) -> tuple[Partition, int]:
    """Read a line of a file of offsets. Raises ValueError."""
    topic, *numbers = [each.strip().strip('"') for each in line.split(",")]
    if len(numbers) != 2 or not all(each.isdecimal() and len(each) < 20 for each in numbers):
        raise ValueError(f"{quoted(line)} must read TOPIC,PARTITION,OFFSET")
    return (topic, int(numbers[0])), int(numbers[1])


def _kind(row: Any) -> str:
    """Return which offset a row of a description has: a share group's has where it starts."""
    return "start" if "start" in row else "committed"
