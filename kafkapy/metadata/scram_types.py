"""SCRAM mechanisms, and what is stored for a password: salt, iterations, stored key, server key. RFC 5802, KIP-84.

The hashes are imported when a password is first salted: a start needs only the names.
"""

from typing import TYPE_CHECKING, Final

from kafkapy.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord


MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""The limit of both mechanisms, as in Apache Kafka; RFC 7677 requires at least 4096."""
SALT_BITS: Final = 130
_SALT_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    """A mechanism; `code` identifies it in requests and metadata records."""

    code: int
    name: str
    hash_name: str


MECHANISMS: Final = {
    name: ScramMechanism(code, name, hash_name)
    for code, name, hash_name in ((1, "SCRAM-SHA-256", "sha256"), (2, "SCRAM-SHA-512", "sha512"))
}
BY_CODE: Final = {mechanism.code: mechanism for mechanism in MECHANISMS.values()}


class ScramKeys(NamedTuple):
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the PBKDF2 of a password, without SASLprep, as in Apache Kafka. Takes 1 to 14 ms."""
    import hashlib

    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def salt_of(number: int) -> bytes:
    """Return a number of SALT_BITS in base 36: 25 or 26 characters, rarely fewer, as Apache Kafka's tools make salts.

    All of ours look so, also those of unknown users: another alphabet or length would reveal who does not exist.
    """
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_SALT_DIGITS))
        digits.append(_SALT_DIGITS[digit])
    return bytes(reversed(digits)) or b"0"


def keys_of(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    """Return the keys that a server stores for a salted password."""
    import hashlib
    import hmac

    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramKeys(stored_key, hmac.digest(salted, b"Server Key", mechanism.hash_name))


def credential_record(
    user: str, mechanism: ScramMechanism, *, salt: bytes, salted: bytes, iterations: int
) -> "UserScramCredentialRecord":
    """Return the metadata record for a user's salted password."""
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

    stored_key, server_key = keys_of(mechanism, salted)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.code,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )
