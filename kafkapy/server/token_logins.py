"""Logging in with a delegation token: its id is the name, the base64 of its HMAC the password of a SCRAM login. KIP-48.

The metadata holds no SCRAM credential of a token. It is worked out when the token is first used (1 to 2.5 ms) and kept,
while Apache Kafka does so for each token as it comes. The salt is the one that is made up for a name that nobody has,
so that it does not tell which tokens there are.
"""

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkapy.config.definitions import Password
from kafkapy.metadata.delegation_tokens import USER_TYPE, token_hmac
from kafkapy.metadata.scram_types import MIN_ITERATIONS, ScramMechanism, keys_of, salted_password
from kafkapy.security.scram import ScramCredential, ScramToken, made_up_credential

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage

KEPT: Final = 10_000
"""Credentials that are kept, half a KiB each; the one not used for longest goes."""


class TokenLogins:
    def __init__(self, image: "Callable[[], MetadataImage]", key: Password | None, salt_secret: bytes) -> None:
        """`key`: delegation.token.secret.key; without it nobody logs in with a token."""
        self._image = image
        self._salt_secret = salt_secret
        self._secret = key.value.encode() if key is not None else b""
        self._credential = lru_cache(KEPT)(self._new_credential)

    def find(self, mechanism: ScramMechanism, token_id: str) -> ScramToken | None:
        """Return a token that there is, valid or not.

        Deviation: one whose owner is no User is none. Apache Kafka makes the User of that name of who logs in with it,
        though he who asked for it had the right to make tokens for another.
        """
        record = self._image().delegation_tokens.get(token_id)
        if record is None or not self._secret:
            return None
        kind, _, owner = record.owner.partition(":")
        if kind != USER_TYPE or not owner:
            return None
        expires_ms = min(record.expiration_timestamp, record.max_timestamp)
        return ScramToken(owner, self._credential(mechanism, token_id), expires_ms)

    def _new_credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        password = base64.b64encode(token_hmac(self._secret, token_id)).decode()
        salt = made_up_credential(mechanism, self._salt_secret, token_id).salt
        keys = keys_of(mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS))
        return ScramCredential(salt, keys.stored_key, keys.server_key, MIN_ITERATIONS)
