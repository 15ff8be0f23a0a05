"""Logins by OpenID Connect: the authorization code with PKCE (RFC 7636), and a role by a claim of the ID token.

The state, nonce and PKCE verifier of a login are kept by the browser, in a signed cookie that is valid for ten minutes.
The ID token's signature, issuer, audience, times and nonce are checked (PyJWT); the session is the console's own.
"""

import base64
import hashlib
import hmac
import json
import secrets
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kafkapy.console.addresses import is_private_url
from kafkapy.console.render import Renderer, own_link
from kafkapy.console.security import EDITOR, VIEWER, Sessions
from kafkapy.console.settings import Oidc

if TYPE_CHECKING:
    from jwt import PyJWKClient

TIMEOUT_S: Final = 10.0
MAX_BYTES: Final = 1 << 20
LOGIN_S: Final = 600
MAX_WANTED: Final = 1500
"""Bytes, as JSON, of the address of the page after the login: browsers drop a cookie of more than 4096, hexadecimal."""
COOKIE_ENDING: Final = "-login"
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""No HS256: its key would be the client's secret, and none at all is no signature."""
SCOPE: Final = "openid profile email"


class OidcError(Exception):
    """The login failed; the message is one line for the page, and names nothing secret."""


class OidcLogin:
    """/oidc/start leads to the provider, which leads back to /oidc/callback."""

    def __init__(self, oidc: Oidc, sessions: Sessions, renderer: Renderer) -> None:
        self._oidc = oidc
        self._sessions = sessions
        self._renderer = renderer
        self._metadata: dict[str, Any] | None = None
        self._keys: PyJWKClient | None = None
        self._cookie = sessions.cookie + COOKIE_ENDING

    def routes(self) -> list[Route]:
        return [
            Route("/oidc/start", self.start, methods=["GET"]),
            Route("/oidc/callback", self.callback, methods=["GET"]),
        ]

    async def start(self, request: Request) -> Response:
        login = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
        wanted = own_link(request.query_params.get("to", ""))
        login["to"] = wanted if len(json.dumps(wanted)) <= MAX_WANTED else ""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(login["verifier"].encode()).digest()).rstrip(b"=")
        try:
            metadata = await to_thread.run_sync(self._provider)
        except OidcError as error:
            return self._failed(request, str(error))
        parameters = {
            "response_type": "code",
            "client_id": self._oidc.client_id,
            "redirect_uri": self._redirect_uri(request),
            "scope": SCOPE,
            "state": login["state"],
            "nonce": login["nonce"],
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        response = RedirectResponse(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}", 303)
        signed = self._sessions.signed("oidc", "", json.dumps(login), LOGIN_S)
        # lax: the provider's redirect comes from another site
        response.set_cookie(self._cookie, signed, max_age=LOGIN_S, path="/oidc/", httponly=True, samesite="lax")
        return response

    async def callback(self, request: Request) -> Response:
        try:
            login = self._login_of(request)
            if not hmac.compare_digest(request.query_params.get("state", "").encode(), login["state"].encode()):
                raise OidcError("The login began in another window, or too long ago.")
            if "error" in request.query_params:
                raise OidcError(f"The provider refused: {request.query_params['error'][:100]}.")
            code = request.query_params.get("code", "")
            claims = await to_thread.run_sync(self._claims, code, login, self._redirect_uri(request))
            role = self._role(claims)
        except OidcError as error:
            return self._failed(request, str(error))
        user = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])[:200]
        # a page, no redirect: a strict cookie is not sent on a way that began at the provider's site
        response = self._renderer.page(request, "logged_in.html", who=user, role=role, to=login.get("to") or "/")
        session = self._sessions.new(role, user)
        response.set_cookie(self._sessions.cookie, session.text, httponly=True, samesite="strict")
        response.delete_cookie(self._cookie, path="/oidc/")
        return response

    def _login_of(self, request: Request) -> dict[str, str]:
        kept = self._sessions.in_cookie(request.headers.get("cookie", ""), self._cookie, "oidc")
        if kept is None:
            raise OidcError("The login began in another browser, or too long ago.")
        return dict(json.loads(kept.user))

    def _claims(self, code: str, login: dict[str, str], redirect_uri: str) -> dict[str, Any]:
        """Exchange the code for an ID token and return what it says. Raises OidcError."""
        import jwt

        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._oidc.client_id,
            "code_verifier": login["verifier"],
        }
        if self._oidc.client_secret:
            fields["client_secret"] = self._oidc.client_secret
        response = _json(str(self._provider()["token_endpoint"]), urlencode(fields).encode())
        token = response.get("id_token")
        if not isinstance(token, str):
            raise OidcError("The provider sent no ID token.")
        try:
            key = self._signing_keys().get_signing_key_from_jwt(token)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._oidc.client_id,
                issuer=self._oidc.issuer,
                leeway=30,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise OidcError(f"The ID token is refused: {error}") from error
        # a valid token of another login must not open this session; compared in constant time
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), login["nonce"].encode()):
            raise OidcError("The ID token is of another login.")
        return claims

    def _role(self, claims: dict[str, Any]) -> str:
        """Return the role of a user. Raises OidcError for one who may not even look."""
        value = claims.get(self._oidc.claim, [])
        held = {str(each) for each in (value if isinstance(value, list) else [value])}
        if held & self._oidc.editors:
            return EDITOR
        if not self._oidc.viewers or held & self._oidc.viewers:
            return VIEWER
        raise OidcError(f"You are known, and may not look: {self._oidc.claim} names no role here.")

    def _provider(self) -> dict[str, Any]:
        """Return the provider's metadata, once fetched. Raises OidcError."""
        if self._metadata is None:
            found = _json(self._oidc.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if found.get("issuer") != self._oidc.issuer:
                raise OidcError("The provider's metadata names another issuer.")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                check_url(str(found.get(name, "")))
            self._metadata = found
        return self._metadata

    def _signing_keys(self) -> "PyJWKClient":
        import jwt

        if self._keys is None:
            self._keys = jwt.PyJWKClient(str(self._provider()["jwks_uri"]), timeout=TIMEOUT_S)
        return self._keys

    def _redirect_uri(self, request: Request) -> str:
        base = self._oidc.url or f"{request.url.scheme}://{request.headers['host']}"
        return f"{base.rstrip('/')}/oidc/callback"

    def _failed(self, request: Request, problem: str) -> Response:
        return self._renderer.page(request, "login.html", 403, problem=problem, to="")


def check_url(url: str) -> None:
    """Raise OidcError unless a URL is https, or http on this machine."""
    if not is_private_url(url):
        raise OidcError(f"{url[:200] or 'a URL of the provider'} is no https URL.")


def _json(url: str, form: bytes | None = None) -> dict[str, Any]:
    """GET a JSON object, or POST a form for one. Raises OidcError."""
    check_url(url)
    request = urllib.request.Request(url, form, {"accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found = json.loads(response.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise OidcError(f"The provider answers {error.code} at {urlsplit(url).path}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise OidcError(f"The provider does not answer as one at {urlsplit(url).path}.") from error
    if not isinstance(found, dict):
        raise OidcError(f"The provider does not answer as one at {urlsplit(url).path}.")
    return found
