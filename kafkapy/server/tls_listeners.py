"""What each TLS listener of a node is secured with."""

import logging
from collections.abc import Callable

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import Endpoint
from kafkapy.config.tls import TlsConfig, listener_tls
from kafkapy.errors import ConfigError
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.security.certificate import subject_of
from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper
from kafkapy.server.tls_contexts import server_context

ANONYMOUS = "User:ANONYMOUS"

logger = logging.getLogger("kafkapy.server")


def secure(config: BrokerConfig, endpoint: Endpoint) -> ServerTls:
    """Return what a listener's handshakes are made with. Raises ConfigError."""
    tls = listener_tls(config, endpoint.listener)
    return ServerTls(server_context(tls), None if endpoint.security_protocol.uses_sasl else principals(tls))


def principals(tls: TlsConfig) -> Callable[[bytes | None], str]:
    """Return what names the principal of a certificate (DER). Raises ConfigError; what is returned, ValueError."""
    try:
        mapper = PrincipalMapper(tls.ssl_principal_mapping_rules)
    except MappingRuleError as error:
        raise ConfigError("ssl.principal.mapping.rules", tls.ssl_principal_mapping_rules, str(error)) from error

    def principal_of(certificate: bytes | None) -> str:
        return ANONYMOUS if certificate is None else f"User:{mapper.name_of(subject_of(certificate))}"

    return principal_of
