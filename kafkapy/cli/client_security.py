"""TLS and login of a connection of our own, from librdkafka's properties: those of -X, or of --command-config."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.cli import command_config
from kafkapy.cli.command_config import CommandConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkapy.security.sasl import SaslClient


class ConnectionSecurity(Protocol):
    """The TLS and login settings of a connection: command_config.CommandConfig, or PropertiesSecurity."""

    def context(self) -> "SSLContext | None":
        """Return the TLS context; None without TLS. Raises CommandConfigError, OSError."""

    def login(self) -> "SaslClient | None":
        """Return a new login state machine; None without a login. Raises CommandConfigError."""


def security_of(properties: Mapping[str, Any]) -> ConnectionSecurity:
    """Return the settings that librdkafka uses with these properties: the --command-config, changed by -X."""
    config = command_config.current()
    of_config = command_config.security_settings(config.librdkafka())
    if command_config.security_settings(properties) == of_config:
        return config
    return PropertiesSecurity(properties)


def is_of_librdkafka_alone(properties: Mapping[str, Any]) -> bool:
    """Whether -X asks for TLS or a login that only librdkafka has."""
    security = security_of(properties)
    if not isinstance(security, PropertiesSecurity):
        return False
    try:
        security.login()
    except CommandConfigError:
        return True
    return False


class PropertiesSecurity:
    """Settings under librdkafka's names. Methods raise CommandConfigError for those that only librdkafka has."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = {key: str(value) for key, value in properties.items()}
        self._protocol = self._get("security.protocol", "PLAINTEXT").upper()

    def context(self) -> "SSLContext | None":
        if not self._protocol.endswith("SSL"):
            return None
        import ssl

        context = ssl.create_default_context(cafile=self._get("ssl.ca.location"), cadata=self._get("ssl.ca.pem"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as CommandConfig.context
        if self._get("ssl.endpoint.identification.algorithm") == "none":
            context.check_hostname = False
        if self._get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        password = self._get("ssl.key.password", "")
        if "ssl.certificate.location" in self._properties:
            context.load_cert_chain(self._get("ssl.certificate.location"), self._get("ssl.key.location"), password)
        elif "ssl.certificate.pem" in self._properties:
            command_config.load_pem(context, self._get("ssl.certificate.pem"), self._get("ssl.key.pem"), password)
        elif "ssl.keystore.location" in self._properties:
            raise CommandConfigError("ssl.keystore.location: this command reads PEM files: ssl.certificate.location")
        return context

    def login(self) -> "SaslClient | None":
        if not self._protocol.startswith("SASL_"):
            return None
        import secrets  # only for a login: 4 ms

        from kafkapy.metadata.scram_types import MECHANISMS
        from kafkapy.security.plain import PlainClient
        from kafkapy.security.scram import ScramClient

        mechanism = self._get("sasl.mechanism") or self._get("sasl.mechanisms", "GSSAPI")
        name, password = self._get("sasl.username", ""), self._get("sasl.password", "")
        if mechanism == "PLAIN":
            return PlainClient(name, password)
        if mechanism in MECHANISMS:
            return ScramClient(MECHANISMS[mechanism], name, password, nonce=secrets.token_hex(16))
        raise CommandConfigError(f"sasl.mechanism: this command takes {mechanism} from --command-config only")

    def _get(self, key: str, default: Any = None) -> Any:
        return self._properties.get(key, default)
