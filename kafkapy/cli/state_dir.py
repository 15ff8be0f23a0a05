"""Where commands keep what is no setting: $XDG_STATE_HOME/kafkapy, by default ~/.local/state/kafkapy."""

from collections.abc import Mapping
from os.path import expanduser
from pathlib import Path


def state_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory by the XDG base directories: a relative path there counts as none."""
    configured = Path(environment.get("XDG_STATE_HOME", ""))
    home = Path(environment.get("HOME") or expanduser("~"))
    base = configured if configured.is_absolute() else home / ".local" / "state"
    return base / "kafkapy"
