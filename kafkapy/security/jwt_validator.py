"""Validation of signed JSON Web Tokens with PyJWT, like Apache Kafka's BrokerJwtValidator. KIP-768, RFC 7519.

A token must be signed by a key of the JWKS with an RS, PS, ES or EdDSA algorithm, never `none` or HS. It must have exp
and iat, and be valid for some time after both iat and nbf. Claims that RFC 7519 defines must have its types. Deviation:
Apache Kafka tries the first key that fits a token's key id and algorithm. Here MAX_TRIED are tried, because keys are
rotated. Deviation: Apache Kafka has no bound for a token's header. Here it has MAX_HEADER_BYTES at most, because
anybody may send one.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.security.oauthbearer import Bearer, JwtError, trimmed

KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The key type of each accepted algorithm."""
MAX_KEYS: Final = 100
"""Keys of a JWKS, each of which is parsed; providers publish a few."""
MIN_RSA_BITS: Final = 2048
"""Smaller RSA keys of a JWKS are ignored. RFC 7518, section 3.3."""
MAX_KEY_ID: Final = 1_000
"""The maximum length of a key id, in characters; tokens with longer ones are refused."""
MAX_HEADER_BYTES: Final = 4096
"""The maximum length of a token's header, in base64: room for a key id and a certificate's fingerprints."""
MAX_TRIED: Final = 4
"""Keys that a token's signature is verified with: each takes 0.05 to 0.5 ms. A set has that many keys of a type while
its issuer replaces one; tokens of those with more must have a key id."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key of a JWKS. `value` is a PyJWK."""

    key_id: str | None
    key_type: str
    value: Any


MAX_NAME: Final = 4096
"""The maximum length of a principal's name, in characters, as of mapped subjects. Deviation: Apache Kafka has no limit.
Here there is one, because decisions and quotas are remembered by name: a long one would take its length many times.
"""


Keys = Callable[[str | None, int], Iterable[Key]]
"""Takes a token's key id (None: any) and the wall clock in ms; returns the keys that may have signed it."""


def parse_jwks(text: bytes) -> list[Key]:
    """Return the public signing keys of a JSON Web Key Set, ignoring symmetric ones. Raises JwtError."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        entries = json.loads(text)["keys"]
        found = [entry for entry in entries if entry["kty"] in KEY_TYPES.values() and _is_for_signatures(entry)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise JwtError(f"the JWKS cannot be read: {type(error).__name__}") from error
    keys = []
    for entry in found[:MAX_KEYS]:
        try:
            key = Key(entry.get("kid"), entry["kty"], PyJWK(entry, "EdDSA" if entry["kty"] == "OKP" else None))
            if key.key_type != "RSA" or key.value.key.key_size >= MIN_RSA_BITS:
                keys.append(key)
        except (PyJWTError, ValueError, TypeError, LookupError, NotImplementedError):  # the last of "alg": "none"
            continue  # an unsupported algorithm: no token signed with this key can be accepted
    return keys


def _is_for_signatures(entry: Mapping[str, Any]) -> bool:
    return entry.get("use", "sig") == "sig" and "verify" in entry.get("key_ops", ("verify",))


class JwtValidator:
    """Implements oauthbearer.Validate."""

    def __init__(
        self,
        keys: Keys,
        *,
        issuer: str | None,
        audiences: Iterable[str],
        clock_skew_seconds: int,
        scope_claim: str,
        name_claim: str,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._skew_ms = clock_skew_seconds * 1000
        self._scope_claim = scope_claim
        self._name_claim = name_claim

    def __call__(self, token: str, now_ms: int) -> Callable[[], Bearer]:
        header = _header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        key_type = KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
        if key_type is None or not isinstance(key_id, str | None) or len(key_id or "") > MAX_KEY_ID:
            raise JwtError("Could not validate the access token: its algorithm or key id is not allowed")
        if str(header.get("cty")).lower() in ("jwt", "application/jwt"):
            raise JwtError("Could not validate the access token: it contains another token")
        fitting = [*islice((key for key in self._keys(key_id, now_ms) if key.key_type == key_type), MAX_TRIED)]
        return partial(self._validate, token, str(algorithm), fitting, now_ms)

    def _validate(self, token: str, algorithm: str, keys: Sequence[Key], now_ms: int) -> Bearer:
        """Return the owner of a token that one of the keys has signed. Raises JwtError."""
        claims = _verified(token, algorithm, keys)
        for claim in ("iss", "sub", "jti"):
            if not isinstance(claims.get(claim), str | None):
                raise JwtError(f"Could not validate the access token: {claim} must be a string")
        expires_at_ms = self._check_times(claims, now_ms)
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise JwtError("Could not validate the access token: it is not of the expected issuer")
        self._check_audience(claims.get("aud"))
        _check_scopes(self._scope_claim, claims.get(self._scope_claim))
        return Bearer(_name(self._name_claim, claims.get(self._name_claim)), expires_at_ms)

    def _check_times(self, claims: Mapping[str, Any], now_ms: int) -> int:
        """Return when the token expires (wall clock). Raises JwtError."""
        expires_at_ms, issued_at_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
        not_before_ms = _time_ms(claims, "nbf") if claims.get("nbf") is not None else 0
        if now_ms - self._skew_ms >= expires_at_ms:
            raise JwtError("Could not validate the access token: it has expired")
        if now_ms + self._skew_ms < not_before_ms:
            raise JwtError("Could not validate the access token: it is not valid yet (nbf)")
        if expires_at_ms < max(issued_at_ms, not_before_ms):
            raise JwtError("Could not validate the access token: exp cannot be before iat or nbf")
        return expires_at_ms

    def _check_audience(self, audience: object) -> None:
        """Raise JwtError unless the audience is expected. If none is expected, a token must have none, as in jose4j."""
        if audience is None and not self._audiences:
            return
        named = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(each, str) for each in named) or self._audiences.isdisjoint(named):
            raise JwtError("Could not validate the access token: it is not for an expected audience")


def _header(token: str) -> Mapping[str, Any]:
    """Return the header of a token. Raises JwtError."""
    from jwt import get_unverified_header
    from jwt.exceptions import PyJWTError

    if token.find(".", 0, MAX_HEADER_BYTES + 1) < 0:
        raise JwtError("Could not validate the access token: its header is missing or too long")
    try:
        return get_unverified_header(token)
    except (PyJWTError, RecursionError) as error:
        raise JwtError(f"Could not validate the access token: {type(error).__name__}") from error


def _verified(token: str, algorithm: str, keys: Sequence[Key]) -> Mapping[str, Any]:
    """Return the claims of a token after verifying its signature. Raises JwtError."""
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    reader = PyJWS()
    try:
        for key in keys:
            if (claims := _claims(reader, token, key, algorithm)) is not None:
                return claims
    except (PyJWTError, RecursionError) as error:
        raise JwtError(f"Could not validate the access token: {type(error).__name__}") from error
    raise JwtError("Could not validate the access token: no key of the JWKS has signed it")


def _claims(reader: Any, token: str, key: Key, algorithm: str) -> Mapping[str, Any] | None:
    """Return the claims if the token was signed with the key, otherwise None. Raises PyJWTError, JwtError."""
    from jwt.exceptions import InvalidKeyError, InvalidSignatureError

    try:
        payload = reader.decode(token, key.value.key, algorithms=[algorithm])
        claims = json.loads(payload, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (InvalidSignatureError, InvalidKeyError):
        return None
    except (ValueError, TypeError, RecursionError) as error:
        raise JwtError("Could not validate the access token: it is no JSON object") from error
    if not isinstance(claims, dict):
        raise JwtError("Could not validate the access token: it is no JSON object")
    return claims


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError if it has a name twice: which one counts would depend on the reader."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _time_ms(claims: Mapping[str, Any], claim: str) -> int:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise JwtError(f"Could not validate the access token: {claim} must be a time")
    return int(value) * 1000


def _check_scopes(claim: str, scopes: object) -> None:
    named = scopes if isinstance(scopes, list) else [scopes] if isinstance(scopes, str) else []
    stripped = [trimmed(each) if isinstance(each, str) else "" for each in named]
    if "" in stripped:
        raise JwtError(f"{claim} value must be non-empty")
    if len(set(stripped)) != len(stripped):
        raise JwtError(f"{claim} value must not contain duplicates")


def _name(claim: str, name: object) -> str:
    if not isinstance(name, str) or not trimmed(name):
        raise JwtError(f"{claim} value must be a non-empty string")
    if len(name) > MAX_NAME:
        raise JwtError(f"{claim} value is longer than {MAX_NAME} characters")
    return trimmed(name)
