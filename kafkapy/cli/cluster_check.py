"""`kafkapy cluster check`: can the nodes of a running cluster be replaced by kafkapy's, one by one?"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkapy.cli.client import DEFAULT_SERVER, AsJson, Server
from kafkapy.cli.failure import INTERRUPTED, fail, reason_of
from kafkapy.cli.output import print_json
from kafkapy.config.properties import parse_properties
from kafkapy.errors import KafkapyError

if TYPE_CHECKING:
    from kafkapy.server.migration.findings import Finding

POLL_S: Final = 0.5
"""The interval of checks for findings that may go away by themselves, such as a replica that catches up."""


def check(
    bootstrap_server: Server = "",
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config", metavar="FILE", help="A node's server.properties, to be checked as well; may be repeated."
        ),
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait so long for what goes away by itself.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what prevents replacing a running cluster's nodes by kafkapy's (or back), one by one.

    Without --bootstrap-server only files are checked. Exit status: 0 nothing prevents it; 1 something does or has to be
    waited for, or no node answers.
    """
    # only files are checked, without a network: their cluster may not run yet
    servers = bootstrap_server or ("" if config else DEFAULT_SERVER)
    try:
        found = _of_files(config or ())
        found += _of_cluster(servers, time.monotonic() + wait_s) if servers else []
    except (KafkapyError, OSError) as error:
        prefix = f"{servers}: " if servers else ""
        raise typer.Exit(fail(f"{prefix}{reason_of(error)}")) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    if as_json:
        print_json([_plain(each) for each in found])
    else:
        _show(found)
    if any(is_hindrance(each) for each in found):
        raise typer.Exit(1)


def _of_files(paths: Sequence[Path]) -> "list[Finding]":
    """Return what `cluster check` finds in these files of properties. Raises OSError, KafkapyError."""
    from kafkapy.server.migration.findings import findings_of_properties

    return [each for path in paths for each in findings_of_properties(str(path), parse_properties(path.read_text()))]


def _of_cluster(servers: str, deadline: float) -> "list[Finding]":
    """Return the findings when none is of kind WAITS, or at the deadline. Raises OSError, KafkapyError."""
    from kafkapy.cli.cluster_survey import survey
    from kafkapy.server.migration.findings import Kind, findings_of

    while True:
        try:
            found = findings_of(survey(servers))
        except (KafkapyError, OSError):
            if time.monotonic() >= deadline:
                raise
        else:
            if time.monotonic() >= deadline or not any(each.kind is Kind.WAITS for each in found):
                return found
        time.sleep(POLL_S)


def is_hindrance(finding: "Finding") -> bool:
    return finding.kind.name != "NOTE"


def _plain(finding: "Finding") -> dict[str, Any]:
    return {
        "kind": finding.kind.name.lower(),
        "subject": finding.subject,
        "text": finding.text,
        "remedy": finding.remedy,
    }


def _show(found: "Sequence[Finding]") -> None:
    last = None
    for each in found:
        if each.kind is not last:
            print(f"{each.kind.value}:")
            last = each.kind
        print(f"  {each.subject}: {each.text}")
        if each.remedy:
            print(f"    -> {each.remedy}")
    if not any(is_hindrance(each) for each in found):
        print("nothing is in the way")
