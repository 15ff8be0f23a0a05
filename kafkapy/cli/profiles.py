"""Profiles: clusters by name, kept in $XDG_CONFIG_HOME/kafkapy/profiles.json, for its owner alone (0600).

    {"current": "prod", "profiles": {"prod": {"bootstrap_servers": "b1:9092", "command_config": "/etc/p.properties"}}}

A profile names a client.properties, and holds no password itself. The file is replaced as a whole, so that a command
that reads it meanwhile finds the old one or the new one.
"""

import json
import re
from collections.abc import Mapping
from os.path import expanduser
from pathlib import Path
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, quoted

NAME: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")
FILE: Final = "profiles.json"


class ProfileError(KafkapyError):
    """The profiles cannot be read or written, or there is none of that name; the message is one line."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`command_config`: an absolute path; empty for a cluster without TLS and logins."""

    bootstrap_servers: str
    command_config: str = ""


@dataclass(slots=True)
class Profiles:
    """All profiles, and the name of the one that commands use: empty if they use none."""

    by_name: dict[str, Profile]
    current: str = ""

    @property
    def used(self) -> Profile | None:
        return self.by_name.get(self.current)

    def named(self, name: str) -> Profile:
        """Return the profile of this name. Raises ProfileError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ProfileError(f"no profile is called {quoted(name)}; there are: {known}")
        return self.by_name[name]


def path_of_profiles(environment: Mapping[str, str]) -> Path:
    """Return where profiles are kept, by the XDG base directories: a relative path there counts as none."""
    configured = Path(environment.get("XDG_CONFIG_HOME", ""))
    base = configured if configured.is_absolute() else Path(environment.get("HOME") or expanduser("~")) / ".config"
    return base / "kafkapy" / FILE


def load(path: Path) -> Profiles:
    """Return the profiles of a file, none if it does not exist or is another user's. Raises ProfileError.

    Without -H, sudo leaves HOME as it is: commands of that user are to work as without profiles.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        by_name = {name: _profile(each) for name, each in kept["profiles"].items()}
        return Profiles(by_name, str(kept.get("current", "")))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Profiles({})
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProfileError(f"{path} is damaged: delete it, or mend it") from error


def save(path: Path, profiles: Profiles) -> None:
    """Write the profiles to a file that only its owner may read. Raises ProfileError."""
    named = {
        name: {"bootstrap_servers": each.bootstrap_servers, "command_config": each.command_config}
        for name, each in sorted(profiles.by_name.items())
    }
    text = json.dumps({"current": profiles.current, "profiles": named}, indent=2) + "\n"
    if not path.is_absolute():
        raise ProfileError("there is no home directory to keep profiles in: set XDG_CONFIG_HOME")
    from kafkapy.private_file import write_private  # commands that only read are not to import it

    try:
        write_private(path, text)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error


def _profile(kept: Any) -> Profile:
    servers, config = kept["bootstrap_servers"], kept.get("command_config", "")
    if not isinstance(servers, str) or not isinstance(config, str):
        raise TypeError("not texts")
    return Profile(servers, config)
