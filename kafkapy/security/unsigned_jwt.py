"""Tokens without a signature, for development: anyone can claim any name with them. RFC 7515 (alg none), KIP-255.

Like Apache Kafka's OAuthBearerUnsecuredValidatorCallbackHandler and OAuthBearerUnsecuredLoginCallbackHandler, with
their options of the login module. Deviation: Apache Kafka accepts them without a JWKS. Here only with
kafkapy.sasl.oauthbearer.unsecured.enable, because anybody can make one.
"""

import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafkapy.security.client_jwt import read_claims, read_part, time_ms
from kafkapy.security.jwt_validator import MAX_NAME
from kafkapy.security.oauthbearer import Bearer, JwtError, trimmed

VALIDATOR: Final = "unsecuredValidator"
LOGIN: Final = "unsecuredLogin"
LIFETIME_S: Final = 3600


class UnsignedJwtValidator:
    """Implements oauthbearer.Validate for tokens with alg none."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: of the login module. Raises ValueError if the clock skew is not a number >= 0."""
        self._name_claim = options.get(f"{VALIDATOR}PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(f"{VALIDATOR}ScopeClaimName", "").strip() or "scope"
        self._scope = options.get(f"{VALIDATOR}RequiredScope", "").split()
        self._skew_ms = int(options.get(f"{VALIDATOR}AllowableClockSkewMs", "").strip() or "0")
        if self._skew_ms < 0:
            raise ValueError(f"Allowable clock skew millis must not be negative: {self._skew_ms}")

    def __call__(self, token: str, now_ms: int) -> Callable[[], Bearer]:
        return partial(self._read, token, now_ms)

    def _read(self, token: str, now_ms: int) -> Bearer:
        if read_part(token, 0).get("alg") != "none" or not token.endswith("."):
            raise JwtError("the token is signed, but only unsigned ones can be checked without a JWKS")
        claims = read_claims(token)
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not trimmed(name) or len(name) > MAX_NAME:
            raise JwtError(f"{self._name_claim} value must be a string of 1 to {MAX_NAME} characters")
        expires_at_ms = self._check_times(claims, now_ms)
        if not _scopes(claims.get(self._scope_claim)).issuperset(self._scope):
            raise JwtError("the token has not the required scope")
        return Bearer(name, expires_at_ms)

    def _check_times(self, claims: Mapping[str, Any], now_ms: int) -> int:
        """Return when the token expires. Raises JwtError."""
        expires_at_ms, issued_at_ms = time_ms(claims, "exp"), time_ms(claims, "iat", is_required=False)
        assert expires_at_ms is not None
        if issued_at_ms is not None and (issued_at_ms > now_ms + self._skew_ms or issued_at_ms >= expires_at_ms):
            raise JwtError("the token is of the future, or expires before it is issued")
        if now_ms - self._skew_ms >= expires_at_ms:
            raise JwtError("the token has expired")
        return expires_at_ms


def _scopes(claim: object) -> set[str]:
    """Return the scopes of a claim. As in Apache Kafka a string is one scope, even with spaces in it."""
    given = claim if isinstance(claim, list) else [claim]
    return {trimmed(each) for each in given if isinstance(each, str)}


def unsigned_token(options: Mapping[str, str], now_ms: int) -> str:
    """Return a token with the claims that the options of a login module name. Raises JwtError.

    unsecuredLoginStringClaim_<name>, unsecuredLoginNumberClaim_<name>, unsecuredLoginListClaim_<name> (the first
    character separates the elements), unsecuredLoginLifetimeSeconds.
    """
    try:
        lifetime_s = int(options.get(f"{LOGIN}LifetimeSeconds", LIFETIME_S))
        claims: dict[str, Any] = {"exp": now_ms / 1000 + lifetime_s, "iat": now_ms / 1000}
        for key, value in options.items():
            claims |= _claim(key, value)
    except ValueError as error:
        raise JwtError("an option of the login module is not a number") from error
    name_claim = options.get(f"{LOGIN}PrincipalClaimName", "").strip() or "sub"
    if not isinstance(claims.get(name_claim), str) or not claims[name_claim]:
        raise JwtError(f"the login module has no option {LOGIN}StringClaim_{name_claim}")
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _claim(key: str, value: str) -> dict[str, Any]:
    kind, _, claim = key.removeprefix(LOGIN).partition("Claim_")
    if not key.startswith(LOGIN) or not claim:
        return {}
    if claim in ("iat", "exp"):
        raise JwtError(f"Cannot explicitly set the '{claim}' claim")
    if kind == "String":
        return {claim: value}
    if kind == "Number":
        return {claim: float(value)}
    if kind == "List":
        return {claim: [each for each in value[1:].split(value[0]) if each] if value else []}
    return {}


def _encoded(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()
