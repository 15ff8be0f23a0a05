"""The ssl.* keys: of all listeners, or of one (BrokerConfig.listener_tls)."""

from kafkapy.config.definitions import Password
from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


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
