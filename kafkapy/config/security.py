"""Keys of authorization and SASL: the defaults of all listeners."""

from kafkapy.config.definitions import Password
from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    allow_everyone_if_no_acl_found: bool = False
    authorizer_class_name: str = ""
    connections_max_reauth_ms: int = 0
    delegation_token_expiry_check_interval_ms: int = 3600000
    delegation_token_expiry_time_ms: int = 86400000
    delegation_token_max_lifetime_ms: int = 604800000
    delegation_token_secret_key: Password | None = None
    kafkapy_sasl_allowed_login_modules: tuple[str, ...] = ()
    kafkapy_sasl_oauthbearer_allowed_files: tuple[str, ...] = ()
    kafkapy_sasl_oauthbearer_allowed_urls: tuple[str, ...] = ()
    kafkapy_sasl_oauthbearer_unsecured_enable: bool = False
    principal_builder_class: str = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    sasl_client_callback_handler_class: str | None = None
    sasl_enabled_mechanisms: tuple[str, ...] = ("GSSAPI",)
    sasl_jaas_config: Password | None = None
    sasl_kerberos_kinit_cmd: str = "/usr/bin/kinit"
    sasl_kerberos_min_time_before_relogin: int = 60000
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = ("DEFAULT",)
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_ticket_renew_jitter: float = 0.05
    sasl_kerberos_ticket_renew_window_factor: float = 0.8
    sasl_login_callback_handler_class: str | None = None
    sasl_login_class: str | None = None
    sasl_login_connect_timeout_ms: int | None = None
    sasl_login_read_timeout_ms: int | None = None
    sasl_login_refresh_buffer_seconds: int = 300
    sasl_login_refresh_min_period_seconds: int = 60
    sasl_login_refresh_window_factor: float = 0.8
    sasl_login_refresh_window_jitter: float = 0.05
    sasl_login_retry_backoff_max_ms: int = 10000
    sasl_login_retry_backoff_ms: int = 100
    sasl_mechanism_controller_protocol: str = "GSSAPI"
    sasl_mechanism_inter_broker_protocol: str = "GSSAPI"
    sasl_oauthbearer_allow_unverified_audience: bool = False
    sasl_oauthbearer_allow_unverified_issuer: bool = False
    sasl_oauthbearer_assertion_algorithm: str = "RS256"
    sasl_oauthbearer_assertion_claim_aud: str | None = None
    sasl_oauthbearer_assertion_claim_exp_seconds: int = 300
    sasl_oauthbearer_assertion_claim_iss: str | None = None
    sasl_oauthbearer_assertion_claim_jti_include: bool = False
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = 60
    sasl_oauthbearer_assertion_claim_sub: str | None = None
    sasl_oauthbearer_assertion_file: str | None = None
    sasl_oauthbearer_assertion_private_key_file: str | None = None
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = None
    sasl_oauthbearer_assertion_template_file: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: Password | None = None
    sasl_oauthbearer_clock_skew_seconds: int = 30
    sasl_oauthbearer_expected_audience: tuple[str, ...] = ()
    sasl_oauthbearer_expected_issuer: str | None = None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = 3600000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = 10000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = 100
    sasl_oauthbearer_jwks_endpoint_url: str | None = None
    sasl_oauthbearer_jwt_retriever_class: str = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    sasl_oauthbearer_jwt_validator_class: str = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_sub_claim_name: str = "sub"
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_server_callback_handler_class: str | None = None
    sasl_server_max_receive_size: int = 524288
    security_providers: str | None = None
    super_users: str = ""
