"""The controller's table of delegation tokens: creation, renewal, expiry by request or by time. KIP-48, KIP-373.

A record has a token's owner and times. Its HMAC, by which a client authenticates, is computed from the id and
delegation.token.secret.key and is in no record. Times are wall-clock ms. Error codes are Apache Kafka's; in the
response to a refused request the timestamps are 0.

A token is valid until its expiration_timestamp, which its owner and renewers can move, up to max_timestamp. An expired
token is refused at a login (security/scram.py), and sessions of logins by it have ended (security/authentication.py).
The active controller removes expired tokens in intervals (runtime/controller/schedule.py).
"""

import base64
import hmac
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.features import FeatureControl
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Random
from kafkapy.types import INT64_MAX

if TYPE_CHECKING:
    from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
    from kafkapy.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord

TOKENS_SINCE: Final = 14
"""The first metadata.version (3.6-IV2) with records of tokens."""
MAX_REMOVED_PER_DECISION: Final = 1000
"""Tokens removed by one decision, so that others are decided in between."""
USER_TYPE: Final = "User"


class TokenRules(NamedTuple):
    """The delegation.token.* configs; the secret is UTF-8 and never empty."""

    secret: bytes
    max_lifetime_ms: int
    expiry_time_ms: int

    def __repr__(self) -> str:
        return "TokenRules([hidden])"


class CreatedToken(NamedTuple):
    record: "DelegationTokenRecord"
    hmac: bytes


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """Return the HMAC-SHA512 of a token's id. Its base64 form is the client's password."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def is_expired(token: "DelegationTokenRecord", now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def is_owner_or_renewer(token: "DelegationTokenRecord", principal: str) -> bool:
    """`principal`: `type:name`."""
    return principal == token.owner or principal in token.renewers


class DelegationTokenControl:
    """The delegation tokens of the cluster, including uncommitted ones."""

    def __init__(
        self,
        features: FeatureControl,
        random: Random,
        rules: TokenRules | None,
        tokens: "Mapping[str, DelegationTokenRecord]",
    ) -> None:
        """`rules`: None without a secret key; `tokens`: those of the image from which the controller was loaded."""
        self._features = features
        self._random = random
        self._rules = rules
        self._by_id = dict(tokens)
        self._ids: dict[bytes, str] = {}
        """By HMAC; empty without a key."""
        if rules is not None:
            self._ids = {token_hmac(rules.secret, token_id): token_id for token_id in tokens}

    @property
    def by_id(self) -> "Mapping[str, DelegationTokenRecord]":
        return self._by_id

    def decide_create(
        self, *, requester: str, owner: str, renewers: Sequence[str], max_lifetime_ms: int, now_ms: int
    ) -> Decision[Any, CreatedToken]:
        """Create a token. Principals are `type:name`. Raises ApiError."""
        from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord

        rules = self._checked_rules()
        if not all(renewer.startswith(f"{USER_TYPE}:") for renewer in renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        lifetime_ms = min(rules.max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else rules.max_lifetime_ms
        max_timestamp = _sum(now_ms, lifetime_ms)
        record = DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=list(renewers),
            issue_timestamp=now_ms,
            max_timestamp=max_timestamp,
            expiration_timestamp=min(max_timestamp, _sum(now_ms, rules.expiry_time_ms)),
            token_id=base64.urlsafe_b64encode(self._random.uuid()).decode().rstrip("="),
        )
        assert record.token_id not in self._by_id, "a new token would take another one's place"
        assert now_ms <= record.expiration_timestamp <= max_timestamp, (
            "a token would expire before, or outlive, its life"
        )
        created = CreatedToken(record, token_hmac(rules.secret, record.token_id))
        return Decision(created, [record], is_atomic=True)

    def decide_renew(self, *, requester: str, token: bytes, period_ms: int, now_ms: int) -> Decision[Any, int]:
        """Extend a token's validity; the response is its new expiry time. `token` is its HMAC. Raises ApiError."""
        rules = self._checked_rules()
        found = self._find(token)
        if is_expired(found, now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_may_change(found, requester)
        period_ms = min(rules.expiry_time_ms, period_ms) if period_ms > 0 else rules.expiry_time_ms
        return _valid_until(found, _sum(now_ms, period_ms))

    def decide_expire(self, *, requester: str, token: bytes, period_ms: int, now_ms: int) -> Decision[Any, int]:
        """Make a token expire in `period_ms`, or remove it at once if that is negative. Raises ApiError.

        `token` is its HMAC; the response is its expiry time.
        """
        from kafkapy.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord

        self._checked_rules()
        found = self._find(token)
        _check_may_change(found, requester)
        if period_ms < 0:
            return Decision(now_ms, [RemoveDelegationTokenRecord(token_id=found.token_id)], is_atomic=True)
        if is_expired(found, now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return _valid_until(found, _sum(now_ms, period_ms))

    def decide_remove_expired(self, now_ms: int) -> Decision[Any, bool]:
        """Remove up to MAX_REMOVED_PER_DECISION expired tokens; the response says whether there are more."""
        from kafkapy.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord

        expired = [token_id for token_id, token in self._by_id.items() if is_expired(token, now_ms)]
        records = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:MAX_REMOVED_PER_DECISION]]
        return Decision(len(expired) > MAX_REMOVED_PER_DECISION, records)

    def _checked_rules(self) -> TokenRules:
        if self._rules is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if self._features.metadata_version < TOKENS_SINCE:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        return self._rules

    def _find(self, token: bytes) -> "DelegationTokenRecord":
        token_id = self._ids.get(bytes(token))
        if token_id is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        assert token_id in self._by_id, "each token that is known by its HMAC is known by its id"
        return self._by_id[token_id]

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: "DelegationTokenRecord") -> None:
        self._by_id[record.token_id] = record
        if self._rules is not None:
            self._ids[token_hmac(self._rules.secret, record.token_id)] = record.token_id

    def replay_remove(self, record: "RemoveDelegationTokenRecord") -> None:
        """Remove a token. A missing token is no error: two requests may have removed it at the same time."""
        self._by_id.pop(record.token_id, None)
        if self._rules is not None:
            self._ids.pop(token_hmac(self._rules.secret, record.token_id), None)


def _check_may_change(token: "DelegationTokenRecord", requester: str) -> None:
    if not is_owner_or_renewer(token, requester):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _valid_until(token: "DelegationTokenRecord", wanted_ms: int) -> Decision[Any, int]:
    """Return the decision that makes a token valid until wanted_ms, at most until its maximum lifetime ends."""
    from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord

    expires_ms = min(token.max_timestamp, wanted_ms)
    changed = DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expires_ms,
        token_id=token.token_id,
    )
    return Decision(expires_ms, [changed], is_atomic=True)


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, INT64_MAX)
