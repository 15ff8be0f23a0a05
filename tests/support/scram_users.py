"""Users who log in by SCRAM, made through confluent-kafka's Admin client."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

BOTH = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
ITERATIONS = 4096


def add_user(
    bootstrap: str,
    user: str,
    password: str,
    mechanisms: tuple[Any, ...] = BOTH,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A request names a user once: one for each mechanism. `settings`: what else the Admin client is given."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings})
    for mechanism in mechanisms:
        upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, ITERATIONS), password.encode())
        admin.alter_user_scram_credentials([upsertion])[user].result(120)
