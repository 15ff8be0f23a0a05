"""Logins by OpenID Connect: a provider of the test's own, honest or not; roles; what a viewer may not do."""

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.testclient import TestClient

from kafkapy.cli.console_options import new_parser
from kafkapy.console.app import new_app
from kafkapy.console.main import OptionError, settings_of
from kafkapy.console.oidc import OidcError, check_url
from kafkapy.console.settings import Oidc, Settings
from tests.support.console_pages import OWN, csrf_of, post, sessions_of
from tests.support.http_server import QuietHandler, serving

CLIENT = "kafkapy-console"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """Gives a code for each login that the test grants; `claims` and `change` say what its ID tokens hold."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"sub": "u1", "preferred_username": "ann", "groups": ["ops"]}
        self.key = KEY
        self.algorithm = "RS256"
        self.asked: dict[str, str] = {}
        self.secret = ""
        self.issuer = ""

    def metadata(self) -> dict[str, str]:
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        return {"issuer": self.issuer, **{name: f"{self.issuer}/{name}" for name in names}}

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
        return {"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}

    def grant(self, location: str) -> str:
        """Log somebody in who was sent here; return the query of the way back."""
        self.asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        return f"code=c1&state={self.asked['state']}"

    def token(self, form: dict[str, str]) -> dict[str, str] | None:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        is_same = challenge.decode() == self.asked["code_challenge"] and self.asked["code_challenge_method"] == "S256"
        if not is_same or form["code"] != "c1" or form.get("client_secret", "") != self.secret:
            return None
        now_s = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now_s, "exp": now_s + 60, "nonce": self.asked["nonce"]}
        key = self.key if self.algorithm == "RS256" else "s" * 64
        return {"id_token": jwt.encode(claims | self.claims, key, self.algorithm, headers={"kid": "k1"})}


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            is_metadata = self.path == "/.well-known/openid-configuration"
            self._respond(found.metadata() if is_metadata else found.keys())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            self._respond(found.token({name: values[0] for name, values in form.items()}))

        def _respond(self, body: object) -> None:
            self.send_response(200 if body is not None else 400)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    with serving(Handler) as port:
        found.issuer = f"http://127.0.0.1:{port}"
        yield found


def console(provider: Provider, **fields: Any) -> TestClient:
    oidc = Oidc(provider.issuer, CLIENT, editors=frozenset({"admins"}), **fields)
    app = new_app(Settings(servers="127.0.0.1:1", allow_changes=True, oidc=oidc))
    return TestClient(app, base_url=OWN, follow_redirects=False)


def log_in(page: TestClient, provider: Provider) -> Any:
    started = page.get("/oidc/start")
    assert started.status_code == 303, started.text
    return page.get(f"/oidc/callback?{provider.grant(started.headers['location'])}")


def change(page: TestClient) -> Any:
    return post(page, "create-topic", name="t")


def test_nothing_is_shown_before_the_login(provider: Provider) -> None:
    page = console(provider)
    assert page.get("/charts", headers={"accept": "*/*"}).status_code == 401
    assert "Log in with your account" in page.get("/login").text
    assert 'name="token"' not in page.get("/login").text


@pytest.mark.parametrize(
    ("to", "shown"),
    [
        ("/topic?name=orders", "/topic?name=orders"),
        ("//evil.example", "/"),
        ("/topic?name=" + "n" * 1900, "/"),
        ("/topic?name=" + "\u00fc" * 300, "/"),
    ],
)
def test_after_the_login_comes_the_page_that_was_asked_for(provider: Provider, to: str, shown: str) -> None:
    page = console(provider)
    started = page.get("/oidc/start", params={"to": to}, follow_redirects=False)
    assert len(started.headers["set-cookie"].partition(";")[0]) <= 4096, "browsers drop a longer one: no login"
    done = page.get(f"/oidc/callback?{provider.grant(started.headers['location'])}")
    assert f'url={shown}"' in done.text


@pytest.mark.parametrize(("groups", "status"), [(["ops"], 403), (["ops", "admins"], 200), ("admins", 200)])
def test_a_claim_makes_editors_and_others_only_look(provider: Provider, groups, status) -> None:
    provider.claims["groups"] = groups
    page = console(provider)
    done = log_in(page, provider)
    assert (done.status_code, "ann" in done.text) == (200, True)
    assert "samesite=strict" in done.headers["set-cookie"].lower()
    shown = page.get("/charts")
    assert (shown.status_code, "ann" in shown.text, "changes allowed" in shown.text) == (200, True, status == 200)
    response = change(page)
    assert response.status_code == status
    if status == 403:
        assert "needs the role of an editor" in response.text
        headers = {"origin": OWN, "x-csrf-token": csrf_of(page)}
        assert page.post("/load?name=t", content="{}", headers=headers).status_code == 403


def test_who_has_no_role_is_not_let_in(provider: Provider) -> None:
    page = console(provider, viewers=frozenset({"readers"}))
    refused = log_in(page, provider)
    assert (refused.status_code, "may not look" in refused.text) == (403, True)
    assert page.get("/charts", headers={"accept": "*/*"}).status_code == 401
    provider.claims["groups"] = ["readers"]
    assert log_in(page, provider).status_code == 200


def test_the_secret_and_the_url_are_sent(provider: Provider) -> None:
    provider.secret = "of the client"
    assert log_in(console(provider), provider).status_code == 403
    page = console(provider, client_secret="of the client", url="https://console.example/")
    assert log_in(page, provider).status_code == 200
    assert provider.asked["redirect_uri"] == "https://console.example/oidc/callback"
    assert provider.asked["scope"].startswith("openid")


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "another"}, "of another login"),
        ({"aud": "another"}, "refused"),
        ({"iss": "https://another.example"}, "refused"),
        ({"exp": 1000}, "refused"),
        ({"sub": None}, "refused"),
    ],
)
def test_a_token_that_is_not_for_this_login_is_refused(provider: Provider, claims, said) -> None:
    provider.claims |= claims
    page = console(provider)
    response = log_in(page, provider)
    assert (response.status_code, said in response.text) == (403, True), response.text
    assert page.get("/charts", headers={"accept": "*/*"}).status_code == 401


def test_a_token_that_the_provider_did_not_sign_is_refused(provider: Provider) -> None:
    provider.key = OTHER_KEY
    assert log_in(console(provider), provider).status_code == 403
    provider.algorithm = "HS256"
    assert log_in(console(provider), provider).status_code == 403


def test_a_code_of_another_login_is_not_taken(provider: Provider) -> None:
    page = console(provider)
    query = provider.grant(page.get("/oidc/start").headers["location"])
    page.get("/oidc/start")  # replaces state, nonce and verifier
    assert page.get(f"/oidc/callback?{query}").status_code == 403
    stranger = console(provider)
    assert "another browser" in stranger.get(f"/oidc/callback?{query}").text
    assert (
        "access_denied"
        in page.get(
            f"/oidc/callback?error=access_denied&state={provider.grant(page.get('/oidc/start').headers['location'])[14:]}"
        ).text
    )


def test_a_provider_with_another_name_is_refused(provider: Provider) -> None:
    page = console(provider)
    provider.issuer += "/realm"
    assert "names another issuer" in page.get("/oidc/start").text
    provider.issuer = "http://127.0.0.1:1"
    assert "does not answer" in console(provider).get("/oidc/start").text


def test_a_session_ends_with_the_logout(provider: Provider) -> None:
    page = console(provider)
    log_in(page, provider)
    page.post("/logout", data={"csrf": csrf_of(page)}, headers={"origin": OWN})
    assert page.get("/charts", headers={"accept": "*/*"}).status_code == 401


def test_sessions_end_and_are_of_one_purpose(provider: Provider, monkeypatch) -> None:
    page = console(provider)
    sessions = sessions_of(page)
    session, login = sessions.new().text, sessions.signed("oidc", "", "{}", 600)
    assert sessions.parsed(session) is not None
    assert sessions.parsed(login) is None
    assert sessions.parsed(session.replace("editor", "viewer")) is None
    monkeypatch.setattr(time, "time", lambda: 10**11)
    assert sessions.parsed(session) is None


@pytest.mark.parametrize("url", ["http://provider.example/token", "file:///etc/passwd", ""])
def test_providers_are_asked_by_https(url) -> None:
    with pytest.raises(OidcError):
        check_url(url)
    check_url("http://127.0.0.1:8000/token")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--oidc-issuer", "https://p"], "needs --oidc-client-id"),
        (["--oidc-client-id", "c"], "--oidc-issuer URL"),
        (["--oidc-issuer", "http://p.example", "--oidc-client-id", "c"], "https, or http on this machine"),
        (["--oidc-issuer", "https://p", "--oidc-client-id", "c", "--oidc-client-secret-file", "/none"], "/none"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, said) -> None:
    with pytest.raises(OptionError, match=said):
        settings_of(new_parser().parse_args(arguments))


def test_off_loopback_a_login_is_enough() -> None:
    arguments = ["--listen", "0.0.0.0:8080", "--oidc-issuer", "https://p", "--oidc-client-id", "c"]
    assert settings_of(new_parser().parse_args(arguments)).oidc is not None
