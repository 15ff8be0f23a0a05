"""Obtains a bearer token for the client side of OAUTHBEARER, as Apache Kafka's DefaultJwtRetriever does. KIP-768.

The content of a file URL is the token; an https URL is requested with the client's credentials (RFC 6749, 4.4). The URL
must be in the list of allowed URLs, as on the broker's side. Deviations: http URLs are refused, and a refused request
is not retried.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_plus, unquote, urlsplit

from kafkapy.errors import ConfigError
from kafkapy.server.bearer_tokens import ALLOWED_KEY, check_allowed, endpoint_context
from kafkapy.server.web_request import MAX_BYTES, WebError, ask

URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE_KEY: Final = "sasl.oauthbearer.scope"
ENCODE_KEY: Final = "sasl.oauthbearer.header.urlencode"
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


def retrieve_token(properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Return a token, using a client's properties and its login module's options. Blocks. Raises ConfigError."""
    url = token_url(properties)
    try:
        text = _of_file(url) if url.startswith("file:") else _of_endpoint(url, properties, options)
    except (WebError, OSError) as error:
        raise ConfigError(URL_KEY, url, f"no token can be got there: {error}") from error
    if not _TOKEN.fullmatch(text):
        raise ConfigError(URL_KEY, url, "what is there is no token")
    return text


def _of_file(url: str) -> str:
    with open(unquote(urlsplit(url).path), encoding="utf-8", errors="replace") as file:
        return file.read(MAX_BYTES).strip()


def _of_endpoint(url: str, properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    client_id, secret, scope = client_credentials(properties, options)
    if properties.get(ENCODE_KEY, "").strip().lower() == "true":
        client_id, secret, scope = quote_plus(client_id), quote_plus(secret), quote_plus(scope) if scope else None
    headers = {
        "Accept": "application/json",
        "Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode(),
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = "grant_type=client_credentials" + (f"&scope={scope}" if scope else "")
    context = endpoint_context({key: value for key, value in options.items() if key.startswith("ssl.")})
    answer = ask(url, context=context, body=body.encode(), headers=headers)
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    tokens = [found.get(name) for name in ("access_token", "id_token")] if isinstance(found, dict) else []
    return next((token.strip() for token in tokens if isinstance(token, str)), "")
