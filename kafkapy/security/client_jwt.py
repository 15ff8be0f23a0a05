"""A bearer token as its owner sees it: how long it is valid, and when to renew it. No signature is checked.

Like Apache Kafka's ClientJwtValidator and ExpiringCredentialRefreshingLogin. KIP-255, KIP-768.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.security.oauthbearer import JwtError

PERMILLE: Final = 1000
"""The jitter of a renewal is drawn in parts of this."""


class HeldToken(NamedTuple):
    """A token and its times (wall clock, ms). The text is a secret."""

    text: str
    name: str
    starts_at_ms: int | None
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"HeldToken([hidden], {self.name})"


class RenewalSettings(NamedTuple):
    """The sasl.login.refresh.* keys."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300


def read_token(text: str, *, name_claim: str = "sub") -> HeldToken:
    """Return a token with its times. Raises JwtError without exp, or a name."""
    claims = read_claims(text)
    expires_at_ms = time_ms(claims, "exp")
    assert expires_at_ms is not None
    name = claims.get(name_claim)
    if not isinstance(name, str) or not name.strip():
        raise JwtError(f"{name_claim} value must be a non-empty string")
    return HeldToken(text, name.strip(), time_ms(claims, "iat", is_required=False), expires_at_ms)


def read_claims(text: str) -> Mapping[str, Any]:
    """Return the claims of a token without checking its signature. Raises JwtError."""
    return read_part(text, 1)


def read_part(text: str, part: int) -> Mapping[str, Any]:
    """Return the header (part 0) or the claims (1) of a token. Raises JwtError."""
    parts = text.split(".")
    if len(parts) != 3:
        raise JwtError("the token has not three parts")
    try:
        encoded = parts[part]
        found = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, RecursionError) as error:
        raise JwtError("a part of the token is no JSON object") from error
    if not isinstance(found, dict):
        raise JwtError("a part of the token is no JSON object")
    return found


def time_ms(claims: Mapping[str, Any], claim: str, *, is_required: bool = True) -> int | None:
    """Return the time of a claim in ms, None if it may be missing and is. Raises JwtError."""
    value = claims.get(claim)
    if value is None and not is_required:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise JwtError(f"{claim} must be a time")
    return int(value * 1000)


def renewal_ms(token: HeldToken, now_ms: int, settings: RenewalSettings, *, jitter_permille: int) -> int:
    """Return when to renew a token obtained at `now_ms`. jitter_permille: random, 0 to 999.

    At window_factor (plus jitter) of the token's life, but buffer_seconds before its end and not before
    min_period_seconds from now; a token too short for both is renewed at that part of its remaining life.
    """
    part = settings.window_factor + settings.window_jitter * jitter_permille / PERMILLE
    expires_at_ms = token.expires_at_ms
    earliest_ms = now_ms + 1000 * settings.min_period_seconds
    latest_ms = expires_at_ms - 1000 * settings.buffer_seconds
    if earliest_ms > latest_ms:
        return now_ms + int((expires_at_ms - now_ms) * part)
    starts_at_ms = now_ms if token.starts_at_ms is None else token.starts_at_ms
    proposed_ms = starts_at_ms + int((expires_at_ms - starts_at_ms) * part)
    return min(max(proposed_ms, earliest_ms), latest_ms)
