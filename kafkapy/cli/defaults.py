"""Which brokers and settings a command uses where its options name none: the environment's, else the profile's.

Each option wins over its variable, a variable over the profile in use. `--profile NAME` is an option: it replaces both
variables for one command. The settings of a profile are for its brokers only: other ones, by an option or the variable,
are not shown its password.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kafkapy.cli.profiles import Profile, ProfileError, load, path_of_profiles
from kafkapy.dataclass import dataclass

SERVERS_VARIABLE: Final = "KAFKAPY_BOOTSTRAP_SERVERS"
CONFIG_VARIABLE: Final = "KAFKAPY_COMMAND_CONFIG"
DEFAULT_SERVER: Final = "127.0.0.1:9092"
SERVER_OPTION: Final = re.compile(
    r"--bootstrap-server(=.*)?|-[Beqmy]*b.*|(-X|--client-config=)?bootstrap\.servers=.*", re.DOTALL
)
"""Flags of one letter may stand before b in one word: `-Bb HOST:PORT`. -X may name servers, too."""
OTHER_CLUSTER: Final = re.compile(r"--(bootstrap-controller|data-dir)(=.*)?", re.DOTALL)
"""Options that name a cluster otherwise: of `kafkapy cluster`."""
BUILT_IN: Final = "the default"
PROFILE_OPTION: Final = "--profile"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and where it comes from in words, as `profile prod`."""

    value: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """`servers`: used without --bootstrap-server; `config`: used without --command-config, empty for none."""

    servers: Setting = Setting(DEFAULT_SERVER, BUILT_IN)
    config: Setting = Setting()

    @property
    def names_servers(self) -> bool:
        """Whether the environment or a profile names brokers."""
        return self.servers.source != BUILT_IN


NO_DEFAULTS: Final = Defaults()


def profile_taken(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without `--profile NAME`, and the name. Raises ProfileError.

    It is removed here because it applies to all commands and their parsers do not know it.
    """
    left: list[str] = []
    name: str | None = None
    given = iter(arguments)
    for argument in given:
        option, equals, value = argument.partition("=")
        if argument == "--":
            return [*left, argument, *given], name
        if option != PROFILE_OPTION:
            left.append(argument)
            continue
        if name is not None:
            raise ProfileError(f"{PROFILE_OPTION} is given more than once")
        name = value if equals else next(given, "")
        if not name:
            raise ProfileError(f"{PROFILE_OPTION} needs the name of a profile")
    return left, name


def defaults_of(environment: Mapping[str, str], arguments: Sequence[str], profile_name: str | None = None) -> Defaults:
    """Return the defaults of a command with these arguments. Raises ProfileError.

    profile_name: of --profile, None without it.
    """
    if profile_name is not None:
        return _of_profile(environment, arguments, profile_name)
    if any(map(OTHER_CLUSTER.fullmatch, arguments)):
        return NO_DEFAULTS
    servers = environment.get(SERVERS_VARIABLE, "")
    config = environment.get(CONFIG_VARIABLE, "")
    profile, name = None, ""
    if not servers or not config:
        profiles = load(path_of_profiles(environment))
        profile, name = profiles.used, profiles.current
    has_option = any(map(SERVER_OPTION.fullmatch, arguments))
    return Defaults(_servers(servers, profile, name), _config(config, None if servers or has_option else profile, name))


def config_of_variable(environment: Mapping[str, str]) -> Setting:
    """Return the settings for a command whose options always name the brokers: those of no profile."""
    return _config(environment.get(CONFIG_VARIABLE, ""), None, "")


def _of_profile(environment: Mapping[str, str], arguments: Sequence[str], name: str) -> Defaults:
    for each in arguments:
        if OTHER_CLUSTER.fullmatch(each) or SERVER_OPTION.fullmatch(each):
            raise ProfileError(f"{PROFILE_OPTION} {name} and {each.partition('=')[0]} name a cluster each: give one")
    profile = load(path_of_profiles(environment)).named(name)
    return Defaults(_servers("", profile, name), _config("", profile, name))


def _servers(variable: str, profile: Profile | None, name: str) -> Setting:
    if variable:
        return Setting(variable, SERVERS_VARIABLE)
    return NO_DEFAULTS.servers if profile is None else Setting(profile.bootstrap_servers, f"profile {name}")


def _config(variable: str, profile: Profile | None, name: str) -> Setting:
    if variable:
        return Setting(variable, CONFIG_VARIABLE)
    if profile is None or not profile.command_config:
        return Setting()
    return Setting(profile.command_config, f"profile {name}")
