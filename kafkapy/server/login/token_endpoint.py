"""Obtains a bearer token for the client side of OAUTHBEARER, as Apache Kafka's DefaultJwtRetriever does. KIP-768.

The content of a file URL is the token; an https URL is requested with the client's credentials (RFC 6749, 4.4) or by an
assertion (client_assertion.py). The URL must be in the list of allowed URLs, as on the broker's side. Deviation: Apache
Kafka takes http URLs. Here they are refused, because they show the client's secret.
"""

import base64
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus, unquote, urlsplit

from kafkapy.errors import ConfigError
from kafkapy.server.login.bearer_tokens import ALLOWED_KEY, check_allowed, endpoint_context
from kafkapy.server.login.client_assertion import is_jwt_bearer, new_assertion, uses_assertion
from kafkapy.server.login.web_request import MAX_BYTES, TIMEOUT_S, WebError, send

if TYPE_CHECKING:
    from ssl import SSLContext

URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE_KEY: Final = "sasl.oauthbearer.scope"
ENCODE_KEY: Final = "sasl.oauthbearer.header.urlencode"
HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
BACKOFF_MS: Final = 100
BACKOFF_MAX_MS: Final = 10_000
_TOKEN: Final = re.compile(r"[-_.a-zA-Z0-9]+")


def client_credentials(properties: Mapping[str, str], options: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Return client id, secret and scope, from keys or else from options of the login module. Raises ConfigError."""
    client_id = properties.get(ID_KEY) or options.get("clientId")
    secret = properties.get(SECRET_KEY) or options.get("clientSecret")
    if not client_id or not secret:
        raise ConfigError(ID_KEY if not client_id else SECRET_KEY, None, "it is needed to ask for a bearer token")
    return client_id, secret, properties.get(SCOPE_KEY) or options.get("scope")


def token_url(properties: Mapping[str, str]) -> str:
    """Return the token endpoint's URL after checking that it is allowed. Raises ConfigError."""
    url = properties.get(URL_KEY, "")
    if urlsplit(url).scheme not in ("https", "file"):
        raise ConfigError(URL_KEY, url, "it must be an https or a file URL")
    named = tuple(each.strip() for each in properties.get(ALLOWED_KEY, "").split(","))
    check_allowed(URL_KEY, url, named)
    return url


class TokenError(ConfigError):
    """The token endpoint gave no token. is_retriable: whether a retry may succeed."""

    def __init__(self, url: str, message: str, *, is_retriable: bool) -> None:
        super().__init__(URL_KEY, url, message)
        self.is_retriable = is_retriable


def check_endpoint(properties: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise ConfigError if the keys of the endpoint are missing or not allowed."""
    if not token_url(properties).startswith("file:"):
        _request(properties, options)
        _context(options)


def retrieve_token(properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Return a token, using a client's properties and its login module's options. Blocks. Raises ConfigError."""
    url = token_url(properties)
    try:
        text = _of_file(url) if url.startswith("file:") else _of_endpoint(url, properties, options)
    except (WebError, OSError) as error:
        is_retriable = getattr(error, "is_retriable", True)
        raise TokenError(url, f"no token can be got there: {error}", is_retriable=is_retriable) from error
    if not _TOKEN.fullmatch(text):
        raise TokenError(url, "what is there is no token", is_retriable=False)
    return text


def retrieve_with_retries(
    properties: Mapping[str, str],
    options: Mapping[str, str],
    *,
    monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Like retrieve_token, but retry for sasl.login.retry.backoff.max.ms, as Apache Kafka's Retry does."""
    backoff_ms = int(properties.get("sasl.login.retry.backoff.ms", BACKOFF_MS))
    end_ms = monotonic_ms() + int(properties.get("sasl.login.retry.backoff.max.ms", BACKOFF_MAX_MS))
    while True:
        try:
            return retrieve_token(properties, options)
        except TokenError as error:
            wait_ms = min(backoff_ms, end_ms - monotonic_ms())
            if not error.is_retriable or wait_ms <= 0:
                raise
        sleep(wait_ms / 1000)
        backoff_ms *= 2


def _of_file(url: str) -> str:
    with open(unquote(urlsplit(url).path), encoding="utf-8", errors="replace") as file:
        return file.read(MAX_BYTES).strip()


def _of_endpoint(url: str, properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    headers, body = _request(properties, options)
    response = send(
        url,
        context=_context(options),
        body=body.encode(),
        headers={**HEADERS, **headers},
        timeout_s=_seconds(properties, "sasl.login.read.timeout.ms"),
        connect_timeout_s=_seconds(properties, "sasl.login.connect.timeout.ms"),
    )
    try:
        found = json.loads(response)
    except (ValueError, RecursionError):
        found = None
    tokens = [found.get(name) for name in ("access_token", "id_token")] if isinstance(found, dict) else []
    return next((token.strip() for token in tokens if isinstance(token, str)), "")


def _request(properties: Mapping[str, str], options: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """Return headers and body of a request for a token. Raises ConfigError."""
    if is_jwt_bearer(properties):
        fields = {"grant_type": JWT_BEARER, "assertion": _assertion(properties)}
        return {}, _form(fields | _scope(properties.get(SCOPE_KEY)))
    if uses_assertion(properties):
        fields = {
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": _assertion(properties),
            "grant_type": "client_credentials",
        }
        client_id = (properties.get(ID_KEY) or options.get("clientId") or "").strip()
        named = {"client_id": client_id} if client_id else {}
        return {}, _form(fields | named | _scope(properties.get(SCOPE_KEY) or options.get("scope")))
    client_id, secret, scope = client_credentials(properties, options)
    if properties.get(ENCODE_KEY, "").strip().lower() == "true":
        client_id, secret, scope = quote_plus(client_id), quote_plus(secret), quote_plus(scope) if scope else None
    credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    body = "grant_type=client_credentials" + (f"&scope={scope}" if scope else "")
    return {"Authorization": f"Basic {credentials}"}, body


def _assertion(properties: Mapping[str, str]) -> str:
    return new_assertion(properties, time.time_ns() // 1_000_000, lambda: str(uuid.uuid4()))


def _scope(scope: str | None) -> dict[str, str]:
    return {"scope": scope.strip()} if scope and scope.strip() else {}


def _form(fields: Mapping[str, str]) -> str:
    return "&".join(f"{name}={quote_plus(value)}" for name, value in fields.items())


def _context(options: Mapping[str, str]) -> "SSLContext":
    return endpoint_context({key: value for key, value in options.items() if key.startswith("ssl.")})


def _seconds(properties: Mapping[str, str], key: str) -> float:
    """Return a timeout, of TIMEOUT_S at most. Deviation: Apache Kafka waits for ever without the key. Here for
    TIMEOUT_S, because logins wait for it."""
    return min(TIMEOUT_S, int(properties[key]) / 1000) if key in properties else TIMEOUT_S
