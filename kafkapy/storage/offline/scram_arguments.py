"""Parse the arguments of `storage format --add-scram`: credentials for the bootstrap metadata. KIP-900.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

Syntax and error messages are those of kafka-storage.sh, except that no message shows a password or a salt.
"""

import base64
import binascii
from typing import Final

from kafkapy.metadata.scram_types import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_record,
    salted_password,
)
from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkapy.seams import Random
from kafkapy.storage.offline.format import FormatError

SALT_BYTES: Final = 16


def parse_scram_argument(argument: str, random: Random) -> UserScramCredentialRecord:
    """Return the credential record for one argument. Raises FormatError."""
    mechanism, text = _mechanism(argument.strip())
    parts = dict(_part(each) for each in _split(text))
    name = parts.pop("name", None)
    if name is None:
        raise FormatError("You must supply 'name' to add-scram")
    salt = _decoded("salt", parts.pop("salt", None))
    iterations = _iterations(parts.pop("iterations", str(MIN_ITERATIONS)), mechanism)
    password, salted_text = parts.pop("password", None), parts.pop("saltedpassword", None)
    if password is None and salted_text is None:
        raise FormatError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise FormatError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if password is not None and salted_text is not None:
        parts["saltedpassword"] = salted_text
    if parts:
        raise FormatError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    if salt is None:
        salt = random.randrange(0, 1 << 8 * SALT_BYTES).to_bytes(SALT_BYTES, "big")
    if password is not None:
        salted: bytes | None = salted_password(mechanism, password, salt, iterations)
    else:
        salted = _decoded("saltedPassword", salted_text)
    assert salted is not None
    return credential_record(name, mechanism, salt=salt, salted=salted, iterations=iterations)


def _mechanism(argument: str) -> tuple[ScramMechanism, str]:
    name, equals, text = argument.partition("=")
    if not equals:
        raise FormatError("Failed to find equals sign in SCRAM argument")
    if name not in MECHANISMS:
        raise FormatError(f"The add-scram mechanism {name} is not supported.")
    if not text.startswith("["):
        raise FormatError("Expected configuration string to start with [")
    if not text.endswith("]"):
        raise FormatError("Expected configuration string to end with ]")
    return MECHANISMS[name], text[1:-1]


def _split(text: str) -> list[str]:
    """Split at commas as Java does: without empty parts at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _part(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise FormatError("No equals sign found in a SCRAM component")
    if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    return key, value


def _decoded(what: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise FormatError(f"Failed to decode given {what}") from error


def _iterations(text: str, mechanism: ScramMechanism) -> int:
    try:
        iterations = int(text)
    except ValueError as error:
        raise FormatError(f"Failed to parse iterations count: {text}") from error
    shown = mechanism.name.replace("-", "_")
    if iterations < MIN_ITERATIONS:
        raise FormatError(f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {shown}")
    if iterations > MAX_ITERATIONS:
        raise FormatError(f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {shown}")
    return iterations
