"""Parse the arguments of `storage format --add-scram`: credentials for the bootstrap metadata. KIP-900.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

Syntax, error messages and their order are those of kafka-storage.sh, except that no message shows a password or a
salt. A password wins over a salted password beside it.
"""

import base64
from typing import Final

from kafkapy.metadata.scram_types import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BITS,
    ScramMechanism,
    credential_record,
    salt_of,
    salted_password,
)
from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkapy.seams import Random
from kafkapy.storage.offline.format import FormatError

MAX_DIGITS: Final = 1_000
"""Digits of the iterations, leading zeros included."""


def parse_scram_argument(argument: str, random: Random) -> UserScramCredentialRecord:
    """Return the credential record for one argument. Raises FormatError."""
    mechanism, text = _mechanism(argument.strip())
    parts = dict(_part(each) for each in _split(text))
    name = parts.pop("name", None)
    if name is None:
        raise FormatError("You must supply 'name' to add-scram")
    salt = _decoded("salt", parts.pop("salt", None))
    iterations = _parsed_iterations(parts.pop("iterations", str(MIN_ITERATIONS)))
    password, salted_text = parts.pop("password", None), parts.pop("saltedpassword", None)
    salted: bytes | None = None
    if password is None:
        if salted_text is None:
            raise FormatError("You must supply one of 'password' or 'saltedpassword' to add-scram")
        if salt is None:
            raise FormatError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _decoded("saltedPassword", salted_text)
    if parts:
        raise FormatError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    _check_iterations(iterations, mechanism)
    if not (password or salted):
        raise FormatError("The 'password' or 'saltedpassword' for add-scram must not be empty")
    if salt is None:
        salt = salt_of(random.randrange(0, 1 << SALT_BITS))
    if password is not None:
        salted = salted_password(mechanism, password, salt, iterations)
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
    """Return the bytes of a Base64 text. Its padding may be missing, as in Java."""
    if text is None:
        return None
    try:
        return base64.b64decode(text if "=" in text else text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:  # binascii.Error, or characters that are not ASCII
        raise FormatError(f"Failed to decode given {what}") from error


def _parsed_iterations(text: str) -> int:
    """Return the number as Java's Integer.parseInt reads it: no spaces, no underscores, 32 bits."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not digits.isdecimal() or len(digits) > MAX_DIGITS or not -(1 << 31) <= int(text) < 1 << 31:
        raise FormatError(f"Failed to parse iterations count: {text}")
    return int(text)


def _check_iterations(iterations: int, mechanism: ScramMechanism) -> None:
    shown = mechanism.name.replace("-", "_")
    if iterations < MIN_ITERATIONS:
        raise FormatError(f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {shown}")
    if iterations > MAX_ITERATIONS:
        raise FormatError(f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {shown}")
