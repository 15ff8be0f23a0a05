"""`kafkapy security init`: a directory with everything that a secured node and its first user need.

    ca.pem              the CA certificate that clients trust
    broker.pem          the node's key and certificate
    server.properties   SASL_SSL, SCRAM-SHA-512, the authorizer, the user as super user, the secret key of delegation
                        tokens
    client.properties   for Java's tools and clients, with the password
    data/               formatted, with the user's credentials

Files with secrets are readable by the owner only. The CA's key is not kept: who can read it can impersonate the
node. So a further node needs certificates of another CA, and ca.pem is extended by it (docs/security.md).
"""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkapy.config.load import load
from kafkapy.config.properties import format_properties
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError, quoted
from kafkapy.metadata.scram_types import (
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BITS,
    credential_record,
    salt_of,
    salted_password,
)
from kafkapy.private_file import write_private
from kafkapy.security.jaas import USER_NAME
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.server.tls.dev_certificates import LOCAL_NAMES, DevAuthority
from kafkapy.storage.offline.format import FormatRequest, format_directories
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import uuid_to_string

MECHANISM: Final = "SCRAM-SHA-512"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD_BYTES: Final = 18
TOKEN_KEY_BYTES: Final = 32
HOST_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")
"""Or an address. Certificates have the ASCII form of other names (xn--...)."""


class SetupError(KafkapyError):
    """The directory cannot be set up; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The result of `set_up`."""

    directory: Path
    bootstrap_servers: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Setup({self.directory})"


def set_up(directory: Path, *, user: str, host: str, port: int) -> Setup:
    """Create the directory, which must be missing or empty. Raises SetupError, FormatError, OSError."""
    if USER_NAME.fullmatch(user) is None:
        raise SetupError(f"a user's name may have letters, digits, _ and -, not {quoted(user)}")
    if HOST_NAME.fullmatch(host) is None:
        raise SetupError(f"a host's name may have letters, digits, -, _ and dots, not {quoted(host)}")
    directory = directory.absolute()
    if directory.exists() and any(directory.iterdir()):
        raise SetupError(f"{directory} is not empty: nothing was changed")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)  # it may have been there; the users' verifiers will be in its data directory
    setup = Setup(
        directory=directory,
        bootstrap_servers=f"{host}:{port}",
        user=user,
        password=secrets.token_urlsafe(PASSWORD_BYTES),
    )
    _write_certificates(directory, host)
    properties = _server_properties(setup, host, port)
    write_private(directory / "server.properties", format_properties(properties))
    write_private(directory / "client.properties", format_properties(_client_properties(setup)))
    _format(properties, setup)
    return setup


def _write_certificates(directory: Path, host: str) -> None:
    authority = DevAuthority()
    names = (host, *(name for name in LOCAL_NAMES if name != host))
    issued = authority.issue(host, names)
    with (directory / "ca.pem").open("x") as file:  # the first file: of two commands at once, one ends here
        file.write(authority.certificate_pem)
    write_private(directory / "broker.pem", issued.key_pem + issued.certificate_pem)


def _server_properties(setup: Setup, host: str, port: int) -> dict[str, str]:
    controller = f"127.0.0.1:{port + 1}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"SASL_SSL://{host}:{port},CONTROLLER://{controller}",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "log.dirs": str(setup.directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(setup.directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(setup.directory / "ca.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "delegation.token.secret.key": secrets.token_urlsafe(TOKEN_KEY_BYTES),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{setup.user}",
    }


def _client_properties(setup: Setup) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{setup.user}" password="{setup.password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(setup.directory / "ca.pem"),
    }


def _format(properties: Mapping[str, str], setup: Setup) -> None:
    config, _ = load(properties)
    mechanism, random = MECHANISMS[MECHANISM], SystemRandom()
    salt = salt_of(secrets.randbits(SALT_BITS))
    salted = salted_password(mechanism, setup.password, salt, MIN_ITERATIONS)
    record = credential_record(setup.user, mechanism, salt=salt, salted=salted, iterations=MIN_ITERATIONS)
    request = FormatRequest(
        config=config,
        cluster_id=uuid_to_string(random.uuid()),
        is_standalone=True,
        scram_records=[record],
    )
    format_directories(request, SystemDisk(), random, SystemClock(), lambda _: None)
