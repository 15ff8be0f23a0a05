"""What `Broker(tls=True, users={"alice": "secret"})` sets up: a certificate in memory, logins by SASL/PLAIN."""

import re
from collections.abc import Mapping
from typing import Final

from kafkapy.server.dev_security import DevAuthority

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class EmbeddedSecurity:
    """How the clients of an embedded broker reach it."""

    def __init__(self, *, tls: bool, users: Mapping[str, str] | None) -> None:
        """`users`: passwords by name; None: nobody logs in. Raises ValueError for names that JAAS cannot carry."""
        for name in users or ():
            if USER_NAME.fullmatch(name) is None:
                raise ValueError(f"a user's name may have letters, digits, _ and -, not {name!r}")
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
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": _jaas(self._users),
            }
        return found

    def client_config(self, bootstrap_servers: str, user: str | None) -> dict[str, str]:
        """Return what a client of librdkafka is given. Raises ValueError for a user who is not there."""
        found = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self._authority is not None:
            found["ssl.ca.pem"] = self._authority.certificate_pem
        if self._users is None:
            if user is not None:
                raise ValueError("this broker has no users: Broker(users={...})")
            return found
        if user not in self._users:
            raise ValueError(f"there is no user {user!r}, only {', '.join(self._users)}")
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": self._users[user]}
        return {**found, **login}


def _jaas(users: Mapping[str, str]) -> str:
    options = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
    return f"{PLAIN_MODULE} required {options};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
