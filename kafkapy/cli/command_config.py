"""`--command-config FILE`: TLS and login settings of client commands, in the format of Java's client.properties.

The same file works for Java's tools and all kafkapy commands. Commands that use confluent-kafka get the settings under
librdkafka's names; those with a connection of our own get its TLS context and its login state machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from kafkapy.config.properties import parse_properties
from kafkapy.errors import ConfigError, KafkapyError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkapy.cli.defaults import Setting
    from kafkapy.security.sasl import SaslClient

OPTION: Final = "--command-config"
PASSED_ON: Final = ("security.protocol", "sasl.mechanism", "client.id", "ssl.key.password")
"""Keys that librdkafka has under the same name."""
SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
"""The prefixes of librdkafka's properties of TLS and logins."""
PEM_KEYS: Final = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
}
INLINE_KEYS: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


class CommandConfigError(KafkapyError):
    """A file that cannot be read, or that has unsupported settings."""


class CommandConfig:
    """The security settings of a client.properties. Values are secrets and must not be printed."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = {key: value.strip() for key, value in properties.items()}
        self.protocol = self._properties.get("security.protocol", "PLAINTEXT").upper()
        if self.protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise CommandConfigError(f"security.protocol: {self.protocol} is none")

    def is_checked_by_login(self, properties: Mapping[str, object]) -> bool:
        """Whether a connection of our own finds what is wrong with librdkafka's `properties`.

        Not if it would take a token or an inline certificate, or if a setting of TLS or the login is not of this file.
        """
        if self._is_by_bearer or not INLINE_KEYS.keys().isdisjoint(self._properties):
            return False
        return security_settings(properties) == security_settings(self.librdkafka())

    @classmethod
    def of_file(cls, path: str) -> "CommandConfig":
        """Read a file of client properties. Raises CommandConfigError."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls(parse_properties(file.read()))
        except (OSError, UnicodeDecodeError) as error:
            raise CommandConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def librdkafka(self) -> dict[str, str]:
        """Return the settings under librdkafka's names. Raises CommandConfigError."""
        found: dict[str, str] = {key: self._properties[key] for key in PASSED_ON if key in self._properties}
        for key, names in PEM_KEYS.items():
            if key in self._properties:
                self._check_pem(key)
                found |= dict.fromkeys(names, self._properties[key])
        found |= {name: self._properties[key] for key, name in INLINE_KEYS.items() if key in self._properties}
        algorithm = self._properties.get("ssl.endpoint.identification.algorithm")
        if algorithm is not None:
            found["ssl.endpoint.identification.algorithm"] = algorithm or "none"
        if self._is_by_bearer:
            return found | self._oidc()
        if self.protocol.startswith("SASL_"):
            found["sasl.username"], found["sasl.password"], is_token = self._credentials()
            if is_token:
                raise CommandConfigError("sasl.jaas.config: tokenauth: librdkafka knows no delegation tokens")
        return found

    def context(self) -> "SSLContext | None":
        """Return the TLS context of a connection; None without TLS. Raises CommandConfigError, OSError."""
        if not self.protocol.endswith("SSL"):
            return None
        import ssl

        for key in PEM_KEYS:
            self._check_pem(key)
        trusted = self._properties.get("ssl.truststore.location")
        context = ssl.create_default_context(cafile=trusted, cadata=self._properties.get("ssl.truststore.certificates"))
        # on since Python 3.13; neither Java nor librdkafka is so strict
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._properties.get("ssl.endpoint.identification.algorithm") == "":
            context.check_hostname = False
        if (own := self._properties.get("ssl.keystore.location")) is not None:
            # "": OpenSSL would ask on the terminal
            context.load_cert_chain(own, password=self._properties.get("ssl.key.password", ""))
        elif (chain := self._properties.get("ssl.keystore.certificate.chain")) is not None:
            key = self._properties.get("ssl.keystore.key", "")
            load_pem(context, chain, key, self._properties.get("ssl.key.password", ""))
        return context

    def login(self) -> "SaslClient | None":
        """Return the login state machine; None without a login. Raises CommandConfigError."""
        if not self.protocol.startswith("SASL_"):
            return None
        if self._is_by_bearer:
            return self._bearer()
        import secrets

        from kafkapy.metadata.scram_types import MECHANISMS
        from kafkapy.security.plain import PlainClient
        from kafkapy.security.scram import ScramClient

        mechanism = self._properties.get("sasl.mechanism", "GSSAPI")
        name, password, is_token = self._credentials()
        if mechanism == "PLAIN":
            return PlainClient(name, password)
        if mechanism in MECHANISMS:
            return ScramClient(MECHANISMS[mechanism], name, password, nonce=secrets.token_hex(16), is_token=is_token)
        raise CommandConfigError(f"sasl.mechanism: {mechanism} is not known to this command")

    def _credentials(self) -> tuple[str, str, bool]:
        """Return name, password and whether they are a delegation token's. Raises CommandConfigError."""
        from kafkapy.security.scram import TOKEN_EXTENSION

        options = self._module_options()
        try:
            return options["username"], options["password"], options.get(TOKEN_EXTENSION, "").lower() == "true"
        except KeyError as error:
            raise CommandConfigError("sasl.jaas.config: it names no username or no password") from error

    def _module_options(self) -> Mapping[str, str]:
        """Return the options of the login module. Raises CommandConfigError."""
        from kafkapy.security.jaas import JaasError, parse_entry

        try:
            return parse_entry(self._properties.get("sasl.jaas.config", "")).options
        except JaasError as error:
            raise CommandConfigError(f"sasl.jaas.config: {error}") from error

    # ---- OAUTHBEARER

    @property
    def _is_by_bearer(self) -> bool:
        return self.protocol.startswith("SASL_") and self._properties.get("sasl.mechanism") == "OAUTHBEARER"

    def _bearer(self) -> "SaslClient":
        from kafkapy.security.oauthbearer import OAuthBearerClient
        from kafkapy.server.login.token_endpoint import retrieve_with_retries

        options = self._module_options()
        try:
            return OAuthBearerClient(retrieve_with_retries(self._properties, options))
        except ConfigError as error:
            raise CommandConfigError(str(error)) from error

    def _oidc(self) -> dict[str, str]:
        """Return the settings with which librdkafka obtains a token itself. Raises CommandConfigError."""
        from kafkapy.server.login.bearer_tokens import ASSERTION_PREFIX
        from kafkapy.server.login.client_assertion import is_jwt_bearer, uses_assertion
        from kafkapy.server.login.token_endpoint import client_credentials, token_url

        options = self._module_options()
        if uses_assertion(self._properties) or is_jwt_bearer(self._properties):
            raise CommandConfigError(f"{ASSERTION_PREFIX}*: the client of this command sends no assertions")
        try:
            url = token_url(self._properties)
            client_id, secret, scope = client_credentials(self._properties, options)
        except ConfigError as error:
            raise CommandConfigError(str(error)) from error
        # librdkafka sends the secret itself, and would over http, too
        if not url.startswith("https:"):
            raise CommandConfigError("sasl.oauthbearer.token.endpoint.url: this command needs an https URL")
        found = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": client_id,
            "sasl.oauthbearer.client.secret": secret,
        }
        if scope:
            found["sasl.oauthbearer.scope"] = scope
        trusted = options.get("ssl.truststore.location")
        if trusted is not None:
            if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
                raise CommandConfigError("sasl.jaas.config: ssl.truststore.type: only PEM files are read here")
            found["https.ca.location"] = trusted
        return found

    def _check_pem(self, key: str) -> None:
        kind = self._properties.get(key.replace("location", "type"), "JKS")
        if key in self._properties and kind.upper() != "PEM":
            raise CommandConfigError(
                f"{key}: only PEM files are read here, not {kind} ({key.replace('location', 'type')})"
            )


def security_settings(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of TLS and of the login among librdkafka's properties."""
    return {key: value for key, value in properties.items() if key.startswith(SECURITY_PREFIXES)}


def load_pem(context: "SSLContext", certificate: str, key: str, password: str) -> None:
    """Load an own certificate and its key, given as text. Raises OSError.

    OpenSSL reads them from a file only: this one belongs to the user alone, and is deleted at once.
    """
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)


NOTHING: Final = CommandConfig({})
_current = [NOTHING]


_of_context: Final[ContextVar[CommandConfig | None]] = ContextVar("command_config", default=None)
"""The settings of one of several clusters in a process (the console)."""


def current() -> CommandConfig:
    """Return the configuration of the command that runs, or of the cluster that this context is about."""
    return _of_context.get() or _current[0]


@contextmanager
def used(config: CommandConfig) -> Iterator[None]:
    """Use a configuration in this context, and in threads that copy it, until the block ends."""
    token = _of_context.set(config)
    try:
        yield
    finally:
        _of_context.reset(token)


@contextmanager
def option_taken(arguments: Sequence[str], default: "Setting | None" = None) -> Iterator[list[str]]:
    """Use the file that --command-config names until the block ends; yield the arguments without the option.

    It is removed here because it applies to all commands and their parsers do not know it. default: the file to use
    without the option. Raises CommandConfigError.
    """
    left, path = _split(arguments)
    before = current()
    _current[0] = _of_default(default) if path is None else CommandConfig.of_file(path)
    try:
        yield left
    finally:
        _current[0] = before


def _of_default(default: "Setting | None") -> CommandConfig:
    if default is None or not default.value:
        return NOTHING
    try:
        return CommandConfig.of_file(default.value)
    except CommandConfigError as error:
        raise CommandConfigError(f"{error} ({default.source} names it)") from error


def _split(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without the option, and the file that it names. Raises CommandConfigError."""
    left: list[str] = []
    path: str | None = None
    given = iter(arguments)
    for argument in given:
        name, equals, value = argument.partition("=")
        if name != OPTION:
            left.append(argument)
            continue
        path = value if equals else next(given, None)
        if not path:
            raise CommandConfigError(f"{OPTION} needs a file")
    return left, path
