"""The key that signs the sessions of a console with a login. It is kept, so that logins outlive a restart.

    $XDG_STATE_HOME/kafkapy/console.key      (~/.local/state without it), 64 hexadecimal digits, mode 0600

Each console derives its own key from it and from all that its logins depend on: with another token, provider or list of
roles, sessions of before are not valid, nor are those of another console of the same user. Without the file, they all
end with the next start.
"""

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from kafkapy.console.settings import Settings
from kafkapy.private_file import create_private

KEY_BYTES: Final = 32
FILE: Final = "console.key"


class KeyFileError(Exception):
    """The key cannot be kept; the message is one line."""


def session_key(directory: Path, settings: Settings) -> bytes:
    """Return the key of a console's sessions, by the kept one, which is made if there is none. Raises KeyFileError."""
    path = directory / FILE
    try:
        kept = _read(path)
        if kept is None:
            _create(path)
            kept = _read(path)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    if kept is None:
        raise KeyFileError(f"{path} was deleted while it was made")
    return hmac.new(kept, repr(_logins(settings)).encode(), hashlib.sha256).digest()


def _logins(settings: Settings) -> tuple[object, ...]:
    """Return the settings on which the logins of a console depend; equal ones have the same repr."""
    oidc = settings.oidc
    by_oidc = None
    if oidc is not None:
        by_oidc = (oidc.issuer, oidc.client_id, oidc.claim, sorted(oidc.viewers), sorted(oidc.editors))
    clusters = [(each.name, each.servers) for each in settings.clusters]
    return settings.token, by_oidc, settings.host, settings.port, settings.servers, clusters


def _read(path: Path) -> bytes | None:
    """Return the key, None if there is no file. Raises OSError, KeyFileError if others may have read or written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise KeyFileError(f"{path} is not for this user alone: delete it")
        digits = file.read(2 * KEY_BYTES + 2).strip()
    try:
        kept = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        kept = b""
    if len(kept) != KEY_BYTES:
        raise KeyFileError(f"{path} is damaged: delete it")
    return kept


def _create(path: Path) -> None:
    """Write a new key, unless another console does so meanwhile: nobody sees a part of the file. Raises OSError."""
    with suppress(FileExistsError):
        create_private(path, secrets.token_hex(KEY_BYTES) + "\n")
