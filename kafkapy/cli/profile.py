"""`kafkapy profile add|use|list|show|remove`: clusters by name, so that commands need no -b and no --command-config."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.cli.client import AsJson
from kafkapy.cli.command_config import CommandConfig
from kafkapy.cli.defaults import defaults_of
from kafkapy.cli.failure import fail
from kafkapy.cli.output import print_json, print_table
from kafkapy.cli.overview import GROUPS
from kafkapy.cli.profiles import NAME, Profile, Profiles, load, path_of_profiles, save
from kafkapy.errors import quoted

app = typer.Typer(help=GROUPS["profile"], no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The name of a profile.")]


@app.command()
def add(
    name: Name,
    bootstrap_server: Annotated[
        str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="Brokers of the cluster.")
    ],
    config: Annotated[
        str,
        typer.Option(
            "--command-config",
            "--config",
            metavar="FILE",
            help="Its client.properties; the path is kept, not the content.",
        ),
    ] = "",
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a profile of this name.")] = False,
) -> None:
    """Add a profile."""
    if not NAME.fullmatch(name):
        raise typer.BadParameter(f"{quoted(name)}: letters, digits, _, . and -, at most 64")
    with _changed() as profiles:
        if name in profiles.by_name and not replace:
            raise typer.Exit(fail(f"there is a profile {name}: --replace replaces it"))
        if config:
            CommandConfig.of_file(config)  # refused here rather than by each command
        profiles.by_name[name] = Profile(bootstrap_server, str(Path(config).absolute()) if config else "")
        if use_it:
            profiles.current = name
    hint = "" if use_it else f" `kafkapy profile use {name}` has commands use it."
    print(f"Added profile {name}.{hint}")


@app.command()
def use(
    name: Annotated[str, typer.Argument(metavar="[NAME]", show_default=False, help="The profile to use.")] = "",
    is_none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
) -> None:
    """Set the profile that commands use from now on, or none."""
    if is_none == bool(name):
        raise typer.BadParameter("NAME, or --none")
    with _changed() as profiles:
        if name:
            profiles.named(name)
        profiles.current = name
    print(f"Commands use profile {name}." if name else "Commands use no profile.")


@app.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List profiles; * marks the one in use."""
    profiles = load(path_of_profiles(os.environ))
    rows = [_row(name, each, profiles) for name, each in sorted(profiles.by_name.items())]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("", "PROFILE", "BOOTSTRAP SERVERS", "COMMAND CONFIG"),
        (
            ("*" if row["is_used"] else "", row["profile"], row["bootstrap_servers"], row["command_config"])
            for row in rows
        ),
    )


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", show_default=False, help="A profile; without, what commands use now.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show a profile; without NAME, which brokers and settings commands use now, and who says so."""
    if name:
        profiles = load(path_of_profiles(os.environ))
        row = _row(name, profiles.named(name), profiles)
    else:
        row = _used_now()
    if as_json:
        print_json(row)
        return
    for key, value in row.items():
        print(f"{key.replace('_', ' ')}: {value if value is not None else '-'}")


@app.command()
def remove(name: Name) -> None:
    """Remove a profile; the client.properties that it names stays."""
    with _changed() as profiles:
        profiles.named(name)
        del profiles.by_name[name]
        if profiles.current == name:
            profiles.current = ""
    print(f"Removed profile {name}.")


def _used_now() -> dict[str, Any]:
    found = defaults_of(os.environ, [])
    return {
        "bootstrap_servers": found.servers.value,
        "bootstrap_servers_of": found.servers.source,
        "command_config": found.config.value or None,
        "command_config_of": found.config.source or None,
    }


def _row(name: str, profile: Profile, profiles: Profiles) -> dict[str, Any]:
    return {
        "profile": name,
        "bootstrap_servers": profile.bootstrap_servers,
        "command_config": profile.command_config or None,
        "is_used": name == profiles.current,
    }


@contextmanager
def _changed() -> Iterator[Profiles]:
    """Yield the profiles, and save them with the caller's changes."""
    path = path_of_profiles(os.environ)
    profiles = load(path)
    yield profiles
    save(path, profiles)
