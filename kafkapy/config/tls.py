"""The ssl.* keys: the defaults of all listeners, and the values of one listener."""

from typing import TYPE_CHECKING

from kafkapy.config.definitions import Password
from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    ssl_allow_dn_changes: bool = False
    ssl_allow_san_changes: bool = False
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_engine_factory_class: str | None = None
    ssl_key_password: Password | None = None
    ssl_keymanager_algorithm: str = "SunX509"
    ssl_keystore_certificate_chain: Password | None = None
    ssl_keystore_key: Password | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: Password | None = None
    ssl_keystore_type: str = "JKS"
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_protocol: str = "TLSv1.3"
    ssl_provider: str | None = None
    ssl_secure_random_implementation: str | None = None
    ssl_trustmanager_algorithm: str = "PKIX"
    ssl_truststore_certificates: Password | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_password: Password | None = None
    ssl_truststore_type: str = "JKS"


def listener_tls(config: "BrokerConfig", listener: str) -> TlsConfig:
    """Return the ssl.* keys of one listener: with its prefix, else without prefix.

    On a SASL_SSL listener ssl.client.auth counts only with the listener's prefix (KIP-684).
    """
    values = {key: config.listener_value(listener, key) for key in [*TlsConfig.keys()]}
    own_key = f"listener.name.{listener.lower()}.ssl.client.auth"
    if config.listener_protocols[listener].uses_sasl and own_key not in config.originals:
        values["ssl.client.auth"] = "none"
    return TlsConfig.from_values(values)
