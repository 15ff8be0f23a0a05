"""The setup of `Broker(tls=True, users={"alice": "pw"}, acls=["allow alice read topic:orders"])`.

A certificate in memory, logins by PLAIN or SCRAM, ACLs in the metadata. With `acls`, even an empty list, everything
that they do not allow is denied. Delegation tokens become invalid with the end of the process, unless `properties` have
delegation.token.secret.key.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.config.checks import STANDARD_AUTHORIZER
from kafkapy.errors import quoted
from kafkapy.metadata.acl_types import WILDCARD, Acl
from kafkapy.metadata.scram_types import MECHANISMS, MIN_ITERATIONS, SALT_BITS, salt_of, salted_password
from kafkapy.protocol.response_error import response_error
from kafkapy.security.jaas import LOGIN_MODULES, USER_NAME, option_text
from kafkapy.server.tls.dev_certificates import DevAuthority

if TYPE_CHECKING:
    from kafkapy.machine import Decision
    from kafkapy.metadata.controller import Controller
    from kafkapy.metadata.scram import Record, UserResult
    from kafkapy.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from kafkapy.seams import Random
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Ask

ENABLED: Final = ("PLAIN", *MECHANISMS)
TOKEN_KEY_BYTES: Final = 32
REQUEST_TIMEOUT_S: Final = 30.0
ANY: Final = 1
"""In a filter of ACLs: of any resource type, pattern type, operation, permission."""
SUPER_USERS: Final = "super.users"
AUTHORIZER: Final = "authorizer.class.name"
BROKER_NAME: Final = "kafkapy-broker"
"""By which a broker logs in, with random digits: no user has that name, nor one that the data has kept."""
RANDOM_BYTES: Final = 8
NOBODY: Final = "ANONYMOUS"
"""The name of nodes that reach each other without a login."""


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
        _check_principals(self._acls or (), users)
        self._users = dict(users) if users is not None else None
        self._authority = DevAuthority() if tls else None
        transport = "PLAINTEXT" if self._authority is None else "SSL"
        self.protocol = transport if users is None else f"SASL_{transport}"

    @property
    def ca_pem(self) -> str | None:
        """The certificate that clients trust, None without TLS."""
        return None if self._authority is None else self._authority.certificate_pem

    def properties(self, port: int, properties: Mapping[str, str]) -> dict[str, str]:
        """Return Kafka's keys for a broker that is its own controller; `properties` win over those made here.

        With logins the broker has its own one, and is a super user: it sends dead letters to its own listener.
        """
        found = self.shared_properties()
        if self.protocol != "PLAINTEXT":
            found["listeners"] = f"{self.protocol}://127.0.0.1:{port}"
        if self._users is None:
            return {**found, **properties}
        login = f"{BROKER_NAME}-{secrets.token_hex(RANDOM_BYTES)}", secrets.token_urlsafe(TOKEN_KEY_BYTES)
        found["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        found[_jaas_key(self.protocol, "PLAIN")] = _jaas("PLAIN", self._users, login)
        found |= properties
        if found.get(AUTHORIZER):
            found[SUPER_USERS] = _joined(f"User:{login[0]}", properties.get(SUPER_USERS))
        return found

    def properties_of_nodes(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return Kafka's keys for all nodes of a cluster, which reach each other by PLAINTEXT on loopback.

        So they have no login, and are called ANONYMOUS. With ACLs that name has all rights, and no client may have it.
        Raises ValueError.
        """
        found = {**self.shared_properties(), **properties}
        if self._acls is not None:
            if self._users is None or NOBODY in self._users:
                raise ValueError(f"acls of a cluster need users, none of them {NOBODY}: so its nodes are called")
            found[SUPER_USERS] = _joined(f"User:{NOBODY}", properties.get(SUPER_USERS))
        return found

    def shared_properties(self) -> dict[str, str]:
        """Return Kafka's keys that do not depend on the node."""
        found: dict[str, str] = {}
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
                "delegation.token.secret.key": secrets.token_urlsafe(TOKEN_KEY_BYTES),
            }
            for mechanism in ENABLED:
                users = self._users if mechanism == "PLAIN" else {}
                found[_jaas_key(self.protocol, mechanism)] = _jaas(mechanism, users)
        if self._acls is not None:
            found[AUTHORIZER] = STANDARD_AUTHORIZER
        return found

    async def apply(self, server: "BrokerServer", random: "Random") -> None:
        """Write the SCRAM users and the ACLs to the metadata. Raises ApiError."""
        for request in self._scram_requests(random):
            await server.change(partial(_alter, request))
        acls = self._acls
        if acls:
            for error in await server.change(lambda controller, _: controller.acls.decide_create(acls)):
                if error is not None:
                    raise error

    def apply_to_cluster(self, ask: "Ask", random: "Random") -> None:
        """Write the SCRAM users and the ACLs by requests to a broker. Raises ApiError, OSError, ProtocolError."""
        from kafkapy.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest

        for request in self._scram_requests(random):
            for altered in ask(request, timeout_s=REQUEST_TIMEOUT_S).results:
                if altered.error_code:
                    raise response_error(altered.error_code, altered.error_message)
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in self._acls or ()
        ]
        if creations:
            for created in ask(CreateAclsRequest(creations=creations), timeout_s=REQUEST_TIMEOUT_S).results:
                if created.error_code:
                    raise response_error(created.error_code, created.error_message)

    def is_known_to(self, ask: "Ask") -> bool:
        """Return whether a broker has replayed what apply_to_cluster wrote. Raises OSError, ProtocolError."""
        from kafkapy.protocol.messages.describe_acls_request import DescribeAclsRequest
        from kafkapy.protocol.messages.describe_user_scram_credentials_request import (
            DescribeUserScramCredentialsRequest,
        )

        if self._acls:  # they follow the users in the metadata log
            request = DescribeAclsRequest(
                resource_type_filter=ANY,
                resource_name_filter=None,
                pattern_type_filter=ANY,
                principal_filter=None,
                host_filter=None,
                operation=ANY,
                permission_type=ANY,
            )
            resources = ask(request, timeout_s=REQUEST_TIMEOUT_S).resources
            known = {(each.resource_type, each.resource_name, acl.principal) for each in resources for acl in each.acls}
            return all((acl.resource_type, acl.resource_name, acl.principal) in known for acl in self._acls)
        users = ask(DescribeUserScramCredentialsRequest(users=None), timeout_s=REQUEST_TIMEOUT_S).results
        known_users = {each.user for each in users if len(each.credential_infos) == len(MECHANISMS)}
        return known_users.issuperset(self._users or ())

    def _scram_requests(self, random: "Random") -> "Iterator[AlterUserScramCredentialsRequest]":
        """Yield a request for each mechanism, which names each user once."""
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
            yield request

    def client_config(self, bootstrap_servers: str, user: str | None, mechanism: str) -> dict[str, str]:
        """Return the properties of a librdkafka client. Raises ValueError for an unknown user or mechanism."""
        if mechanism not in ENABLED:
            raise ValueError(f"there is no mechanism {quoted(mechanism)}, only {', '.join(ENABLED)}")
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


def _check_principals(acls: "Sequence[Acl]", users: Mapping[str, str] | None) -> None:
    """Raise ValueError for ACLs of users that do not exist: they would have no effect."""
    if acls and users is None:
        raise ValueError("acls need users, whom they are about: users={'alice': 'secret'}")
    for acl in acls:
        kind, _, name = acl.principal.partition(":")
        if kind == "User" and name != WILDCARD and name not in (users or ()):
            raise ValueError(f"an ACL names the user {quoted(name)}, but users are {', '.join(users or ())}")


def _alter(
    request: "AlterUserScramCredentialsRequest", controller: "Controller", now_ms: int
) -> "Decision[Record, list[UserResult]]":
    return controller.scram.decide_alter(request)


def _joined(principal: str, others: str | None) -> str:
    """Return super.users with one more."""
    return f"{principal};{others}" if others else principal


def _jaas_key(protocol: str, mechanism: str) -> str:
    return f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _jaas(mechanism: str, users: Mapping[str, str], login: tuple[str, str] | None = None) -> str:
    """Return the login module for these users, and for the broker as one of them if it has a login."""
    passwords, own = dict(users), ""
    if login is not None:
        name, password = login
        passwords[name] = password
        own = f" username={option_text(name)} password={option_text(password)}"
    options = "".join(f" user_{name}={option_text(password)}" for name, password in passwords.items())
    return f"{LOGIN_MODULES[mechanism]} required{own}{options};"
