"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove knowledge of the password without sending it. RFC 5802, RFC 7677.

client first: n,,n=alice,r=<nonce>                       server first: r=<both nonces>,s=<salt>,i=<iterations>
client final: c=biws,r=<both nonces>,p=<proof>           server final: v=<signature>

The server stores salt, iterations, stored key and server key, but no password (KIP-84, KIP-554). Deviation: Apache
Kafka refuses an unknown user at its first message. Here it gets a made-up salt and the iterations of a stored user, and
fails at the same step as a wrong password, because clients must not find out which users exist. Deviation: Apache Kafka
decodes =2C and =3D in the name alone, and signs messages as it re-encodes them. Here, because RFC 5802 says so, the
authorization id may be the user name as it was sent, and signatures cover the messages as they were sent. The channel
binding must equal that of the first message, and extensions may come in any order.
"""

import base64
import binascii
import hashlib
import hmac
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.scram_types import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BITS,
    ScramMechanism,
    keys_of,
    salt_of,
    salted_password,
)
from kafkapy.named_tuple import NamedTuple
from kafkapy.security.sasl import SaslError, VisibleSaslError

MAX_MESSAGE_BYTES: Final = 65_536
"""The maximum size of a client message, which bounds the event loop time of an unauthenticated client to about 1 ms."""
TOKEN_EXTENSION: Final = "tokenauth"
"""Extension of the client's first message: name and password are a delegation token's id and HMAC (KIP-48)."""

_ALPHA = "[A-Za-z]+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64 = "(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = f"(?:,{_ALPHA}={_VALUE})*"
_CLIENT_FIRST = (
    f"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    f"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = (
    f"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = f"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
_SERVER_FINAL = f"(?:e=(?P<error>[\\x01-\\x2b\\x2d-\\x3c\\x3e-\\x7f]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}"

_PROOF: Final = b",p="
_HASHES: Final = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}
"""By name: hashlib.new takes twice as long."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The server's record of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


Credentials = Callable[[str], ScramCredential | None]
"""Takes a user name; returns the credential, or None."""


Iterations = Mapping[int, int]
"""How many users have each number of iterations."""


def made_up_iterations(secret: bytes, name: str, stored: Iterations) -> int:
    """Return the iterations of an unknown user: each number as often as among the stored credentials.

    Always the same for a name while `stored` is unchanged; if it changes, few names change (weighted rendezvous
    hashing). Without stored credentials: kafka-configs.sh's default.
    """

    def score(iterations: int) -> float:
        digest = hmac.digest(secret, f"iterations {iterations}:{name}".encode(), "sha256")
        part = (int.from_bytes(digest[:6], "big") + 1) / ((1 << 48) + 1)  # above 0, below 1
        return -math.log(part) / stored[iterations]

    return min(stored, key=score, default=MIN_ITERATIONS)


def made_up_credential(
    mechanism: ScramMechanism, secret: bytes, name: str, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Return a credential that no password matches, always the same for a name. `secret` is the server's own."""
    material = _hmac(mechanism, secret, f"{mechanism.name}:{name}".encode())
    salt = salt_of(int.from_bytes(material, "big") % (1 << SALT_BITS))
    stored_key, server_key = (_hmac(mechanism, material, label) for label in (b"stored", b"server"))
    return ScramCredential(salt, stored_key, server_key, iterations)


class ScramToken(NamedTuple):
    """The server's record of a delegation token."""

    owner: str
    """The name of the principal that a client using this token becomes."""
    credential: ScramCredential
    expires_at_ms: int


Tokens = Callable[[str], ScramToken | None]
"""Takes a delegation token's id; returns the token, or None."""


def _no_token(token_id: str) -> ScramToken | None:
    return None


class ScramServer:
    """sasl.SaslServer for both mechanisms."""

    is_refused = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        *,
        nonce: str,
        secret: bytes,
        tokens: Tokens = _no_token,
        stored_iterations: Callable[[], Iterations] = dict,
    ) -> None:
        """`nonce`: printable, without comma, never used twice; `secret`: the seed of made-up credentials.

        `stored_iterations`: how many of the mechanism's users have each number of iterations.
        """
        self.mechanism = mechanism.name
        self._scram = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self.is_by_token = False
        self.expires_at_ms: int | None = None
        self._own_nonce = nonce
        self._secret = secret
        self._stored_iterations = stored_iterations
        self._credential: ScramCredential | None = None
        self._signed = b""
        self._nonce = ""
        self._binding = b""
        self._name = ""
        self._expected = b""
        """The client's last message up to the proof, if it has no extensions."""
        self.is_complete = False

    @property
    def authorization_id(self) -> str:
        assert self.is_complete
        return self._name

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        if len(response) > MAX_MESSAGE_BYTES:
            raise SaslError(f"The SCRAM client {'first' if self._credential is None else 'final'} message is too long")
        if self._credential is None:
            return self._first(response.decode("utf-8", "replace"), now_ms)
        return self._final(response, self._credential)

    def _first(self, text: str, now_ms: int) -> bytes:
        """Look up the user or token of the client's first message; return the server's first message."""
        found = _match(_CLIENT_FIRST, text, "client first")
        self._name = name = found["name"].replace("=2C", ",").replace("=3D", "=")
        self.is_by_token = _is_by_token(found["extensions"])
        credential = self._of_token(name, now_ms) if self.is_by_token else self._credentials(name)
        if found["authorization_id"] not in (None, found["name"]):
            raise VisibleSaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        made_up = self._made_up(name)  # for known users, too: their responses must not take less time
        if credential is None:
            credential = made_up
        if credential.iterations < MIN_ITERATIONS:
            raise SaslError(f"Iterations {credential.iterations} is less than the minimum {MIN_ITERATIONS}")
        self._credential = credential
        self._binding = found["header"].encode()
        self._nonce = found["nonce"] + self._own_nonce
        challenge = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"{found['bare']},{challenge},".encode()
        self._expected = b"c=%b,r=%b%b" % (base64.b64encode(self._binding), self._nonce.encode(), _PROOF)
        return challenge.encode()

    def _made_up(self, name: str) -> ScramCredential:
        """Return the credential that a user or token has if it is unknown. Tokens all have the same iterations."""
        stored = {} if self.is_by_token else self._stored_iterations()
        iterations = made_up_iterations(self._secret, name, stored)
        return made_up_credential(self._scram, self._secret, name, iterations)

    def _of_token(self, token_id: str, now_ms: int) -> ScramCredential | None:
        """Return a token's credential and set the name to its owner; None if the token is unknown or expired.

        Deviation: Apache Kafka accepts an expired token until it is removed, and closes the connection at its first
        request. Here it is refused, because it has expired.
        """
        token = self._tokens(token_id)
        if token is None or token.expires_at_ms < now_ms:
            return None
        self._name = token.owner
        self.expires_at_ms = token.expires_at_ms
        return token.credential

    def _final(self, response: bytes, credential: ScramCredential) -> bytes:
        """Check the client's proof; return the server's signature. Raises SaslError if the password was wrong."""
        unproved, proof = self._unproved_and_proof(response)
        signed = self._signed + unproved
        client_signature = _hmac(self._scram, credential.stored_key, signed)
        if len(proof) != len(client_signature):
            raise SaslError("Invalid client credentials")
        stored_key = _HASHES[self._scram.hash_name](_xor(client_signature, proof)).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise SaslError("Invalid client credentials")
        self.is_complete = True
        signature = _hmac(self._scram, credential.server_key, signed)
        return b"v=" + base64.b64encode(signature)

    def _unproved_and_proof(self, response: bytes) -> tuple[bytes, bytes]:
        """Return the client's last message without its proof, and the proof. Raises SaslError."""
        expected = self._expected
        if hmac.compare_digest(response[: len(expected)], expected):  # saves the pattern, a tenth of the mechanism
            try:
                return expected[: -len(_PROOF)], binascii.a2b_base64(response[len(expected) :], strict_mode=True)
            except binascii.Error:
                pass  # the pattern says what is wrong
        found = _match(_CLIENT_FINAL, response.decode("utf-8", "replace"), "client final")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise SaslError("Invalid client nonce in the final client message.")
        if not hmac.compare_digest(base64.b64decode(found["binding"]), self._binding):
            raise SaslError("Invalid channel binding in the final client message.")
        return found["unproved"].encode(), base64.b64decode(found["proof"])


class ScramClient:
    """sasl.SaslClient for both mechanisms."""

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, *, nonce: str, is_token: bool = False
    ) -> None:
        """`nonce`: printable, without comma, never used twice; `is_token`: name and password are a token's."""
        self.mechanism = mechanism.name
        self._scram = mechanism
        self._password = password
        self._nonce = nonce
        extensions = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
        self._is_begun = False
        self._expected: bytes | None = None
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            return f"n,,{self._bare}".encode()
        text = challenge.decode("utf-8", "replace")
        if self._expected is None:
            return self._prove(text)
        found = _match(_SERVER_FINAL, text, "server final")
        if found["error"] is not None:
            raise SaslError(f"the server refused the login: {found['error']}")
        if not hmac.compare_digest(base64.b64decode(found["signature"]), self._expected):
            raise SaslError("Invalid server signature in server final message")
        self.is_complete = True
        return b""

    def _prove(self, text: str) -> bytes:
        found = _match(_SERVER_FIRST, text, "server first")
        if not found["nonce"].startswith(self._nonce):
            raise SaslError("Invalid server nonce: does not start with client nonce")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            message = f"Requested iterations {iterations} are not within {MIN_ITERATIONS} and {MAX_ITERATIONS}"
            raise SaslError(message)
        salted = salted_password(self._scram, self._password, base64.b64decode(found["salt"]), iterations)
        unproved = f"c={base64.b64encode(b'n,,').decode()},r={found['nonce']}"
        signed = f"{self._bare},{text},{unproved}".encode()
        keys = keys_of(self._scram, salted)
        proof = _xor(_hmac(self._scram, salted, b"Client Key"), _hmac(self._scram, keys.stored_key, signed))
        self._expected = _hmac(self._scram, keys.server_key, signed)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()


def _is_by_token(extensions: str) -> bool:
    """Whether the extensions `,name=value,...` have tokenauth=true. If it is repeated, the last one counts."""
    if not extensions:
        return False
    values = dict(each.partition("=")[::2] for each in extensions.split(","))
    return values.get(TOKEN_EXTENSION, "").lower() == "true"


def _match(pattern: str, text: str, what: str) -> re.Match[str]:
    found = _compiled(pattern).fullmatch(text)
    if found is None:
        raise SaslError(f"Invalid SCRAM {what} message format")
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of this module when it is first used."""
    return re.compile(pattern)


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _xor(first: bytes, second: bytes) -> bytes:
    assert len(first) == len(second)
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")
