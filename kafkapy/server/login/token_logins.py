"""Logins with delegation tokens: the token id is the SCRAM user name, its base64 HMAC the password. KIP-48.

The metadata holds no SCRAM credentials of tokens. They are computed when a token is first used (1 to 2.5 ms) and
cached; Apache Kafka computes them for each token when it is created. The salt is the one made up for unknown user
names, so that it does not reveal which tokens exist.
"""

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkapy.config.definitions import Password
from kafkapy.metadata.scram_types import MIN_ITERATIONS, ScramMechanism, keys_of, salted_password

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.security.scram import ScramCredential, ScramToken

KEPT: Final = 10_000
"""Size of the LRU cache of credentials, half a KiB each."""


class TokenLogins:
    """Finds the SCRAM credential of a token id in the newest image."""

    def __init__(self, image: "Callable[[], MetadataImage]", key: Password | None, salt_secret: bytes) -> None:
        """`key`: delegation.token.secret.key; without it nobody can log in with a token."""
        self._image = image
        self._salt_secret = salt_secret
        self._secret = key.value.encode() if key is not None else b""
        self._credential = lru_cache(KEPT)(self._new_credential)

    def find(self, mechanism: ScramMechanism, token_id: str) -> "ScramToken | None":
        """Return an existing token, expired or not; None if there is none.

        Deviation: Apache Kafka logs the bearer of a token whose owner is not of type User in as the User of that name.
        Here it is treated as missing, because it was requested by someone with the right to create tokens for the owner
        alone.
        """
        from kafkapy.metadata.delegation_tokens import USER_TYPE
        from kafkapy.security.scram import ScramToken

        record = self._image().delegation_tokens.get(token_id)
        if record is None or not self._secret:
            return None
        kind, _, owner = record.owner.partition(":")
        if kind != USER_TYPE or not owner:
            return None
        expires_ms = min(record.expiration_timestamp, record.max_timestamp)
        return ScramToken(owner, self._credential(mechanism, token_id), expires_ms)

    def _new_credential(self, mechanism: ScramMechanism, token_id: str) -> "ScramCredential":
        from kafkapy.metadata.delegation_tokens import token_hmac
        from kafkapy.security.scram import ScramCredential, made_up_credential

        password = base64.b64encode(token_hmac(self._secret, token_id)).decode()
        salt = made_up_credential(mechanism, self._salt_secret, token_id).salt
        keys = keys_of(mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS))
        return ScramCredential(salt, keys.stored_key, keys.server_key, MIN_ITERATIONS)
