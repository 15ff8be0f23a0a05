"""The setup of `Broker(tls=True, users={"alice": "pw"}, acls=["allow alice read topic:orders"])`.

A certificate in memory, logins by PLAIN or SCRAM, ACLs in the metadata. With `acls`, even an empty list, everything
that they do not allow is denied. Delegation tokens become invalid with the end of the process, unless `properties` have
delegation.token.secret.key.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.config.checks import STANDARD_AUTHORIZER
from kafkapy.errors import quoted
from kafkapy.metadata.scram_types import MECHANISMS, MIN_ITERATIONS, SALT_BITS, salt_of, salted_password
from kafkapy.security.jaas import LOGIN_MODULES, USER_NAME, option_text
from kafkapy.server.tls.dev_certificates import DevAuthority

if TYPE_CHECKING:
    from kafkapy.machine import Decision
    from kafkapy.metadata.controller import Controller
    from kafkapy.metadata.scram import Record, UserResult
    from kafkapy.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from kafkapy.seams import Random
    from kafkapy.server.broker import BrokerServer

ENABLED: Final = ("PLAIN", *MECHANISMS)
TOKEN_KEY_BYTES: Final = 32


class EmbeddedSecurity:
    """The security settings of an embedded broker and its clients."""

    def __init__(self, *, tls: bool, users: Mapping[str, str] | None = None, acls: Sequence[str] | None = None) -> None:
        """`users`: passwords by name; None: no logins. `acls`: as in acl_text; None: no authorization.

        Raises ValueError for names that JAAS cannot represent, AclTextError.
        """
        from kafkapy.server.login.acl_text import parse_acl

        self._acls = None if acls is None else [parse_acl(text) for text in acls]
        for name in users or ():
            if USER_NAME.fullmatch(name) is None:
                raise ValueError(f"a user's name may have letters, digits, _ and -, not {quoted(name)}")
        self._users = dict(users) if users is not None else None
        self._authority = DevAuthority() if tls else None
        transport = "PLAINTEXT" if self._authority is None else "SSL"
        self.protocol = transport if users is None else f"SASL_{transport}"

    @property
    def ca_pem(self) -> str | None:
        """The certificate that clients trust, None without TLS."""
        return None if self._authority is None else self._authority.certificate_pem

    def properties(self, port: int) -> dict[str, str]:
        """Return Kafka's keys for the broker."""
        found: dict[str, str] = {}
        if self.protocol != "PLAINTEXT":
            found["listeners"] = f"{self.protocol}://127.0.0.1:{port}"
        if self._authority is not None:
            issued = self._authority.issue("broker")
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": issued.key_pem,
                "ssl.keystore.certificate.chain": issued.certificate_pem,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self._authority.certificate_pem,
            }
        if self._users is not None:
            found |= {
                "sasl.enabled.mechanisms": ",".join(ENABLED),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "delegation.token.secret.key": secrets.token_urlsafe(TOKEN_KEY_BYTES),
            }
            prefix = f"listener.name.{self.protocol.lower()}"
            for mechanism in ENABLED:
                users = self._users if mechanism == "PLAIN" else {}
                found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = _jaas(mechanism, users)
        if self._acls is not None:
            found["authorizer.class.name"] = STANDARD_AUTHORIZER
        return found

    async def apply(self, server: "BrokerServer", random: "Random") -> None:
        """Write the SCRAM users and the ACLs to the metadata. Raises ApiError."""
        from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
            AlterUserScramCredentialsRequest,
            ScramCredentialUpsertion,
        )

        for mechanism in MECHANISMS.values() if self._users else ():
            request = AlterUserScramCredentialsRequest()
            for name, password in (self._users or {}).items():
                salt = salt_of(random.randrange(0, 1 << SALT_BITS))
                salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
                upsertion = ScramCredentialUpsertion(
                    name, mechanism=mechanism.code, iterations=MIN_ITERATIONS, salt=salt, salted_password=salted
                )
                request.upsertions.append(upsertion)
            await server.change(partial(_alter, request))
        acls = self._acls
        if acls:
            for error in await server.change(lambda controller, _: controller.acls.decide_create(acls)):
                if error is not None:
                    raise error

    def client_config(self, bootstrap_servers: str, user: str | None, mechanism: str) -> dict[str, str]:
        """Return the properties of a librdkafka client. Raises ValueError for an unknown user."""
        found = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self._authority is not None:
            found["ssl.ca.pem"] = self._authority.certificate_pem
        if self._users is None:
            if user is not None:
                raise ValueError("this broker has no users: Broker(users={...})")
            return found
        if user is None or user not in self._users:
            problem = "no user is named" if user is None else f"there is no user {quoted(user)}"
            raise ValueError(f"{problem}, only {', '.join(self._users)}")
        login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self._users[user]}
        return {**found, **login}


def _alter(
    request: "AlterUserScramCredentialsRequest", controller: "Controller", now_ms: int
) -> "Decision[Record, list[UserResult]]":
    return controller.scram.decide_alter(request)


def _jaas(mechanism: str, users: Mapping[str, str]) -> str:
    options = "".join(f" user_{name}={option_text(password)}" for name, password in users.items())
    return f"{LOGIN_MODULES[mechanism]} required{options};"
