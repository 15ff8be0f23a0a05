"""Logins to the console by OpenID Connect in Chromium: a provider on another site, which signs with joserfc.

What a TestClient cannot show: which cookies a browser sends when the provider's redirect comes from another site.
"""

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, Page, expect

from kafkapy import Broker
from tests.support.copying import only_soaked
from tests.support.http_server import QuietHandler, serving
from tools.console_pictures import browser, console_of
from tools.kafka import CHROMIUM_MISSING, chromium

pytestmark = [pytest.mark.long, pytest.mark.ours]
expect.set_options(timeout=60_000)

CLIENT = "kafkapy-console"
USERS: dict[str, dict[str, object]] = {
    "vera": {"groups": ["developers"]},
    "edda": {"groups": ["developers", "admins"]},
    "nora": {"groups": ["sales"]},
    "issuer": {"iss": "http://localhost/another", "groups": ["admins"]},
    "audience": {"aud": "another-client", "groups": ["admins"]},
    "nonce": {"nonce": "of another login", "groups": ["admins"]},
    "expired": {"exp": 1_000_000_000, "groups": ["admins"]},
    "unsigned": {"groups": ["admins"]},
    "state": {"groups": ["admins"]},
    "verifier": {"groups": ["admins"]},
}
"""Who logs in, and how the ID token differs; those named after a fault have rights that they must not get."""
OF_THE_TOKEN = ("issuer", "audience", "nonce", "expired", "unsigned", "verifier")
"""What no browser sees: tests/unit/console/test_oidc.py has the same."""


class Provider:
    """Shows a page with a link for each user, and makes an ID token of the code that the link brings back."""

    def __init__(self) -> None:
        self.issuer = ""
        self._key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        self._other_key = RSAKey.generate_key(2048, {"kid": "k1"})
        self._asked: dict[str, str] = {}

    def document(self, path: str) -> dict[str, object] | None:
        if path == "/.well-known/openid-configuration":
            names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            return {"issuer": self.issuer, **{name: f"{self.issuer}/{name}" for name in names}}
        return {"keys": [self._key.as_dict(private=False)]} if path == "/jwks_uri" else None

    def page(self, query: str) -> str:
        self._asked = {name: values[0] for name, values in parse_qs(query).items()}
        asked = self._asked
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        return "".join(
            f"<p><a href='{asked['redirect_uri']}?code={user}&state={'x' if user == 'state' else asked['state']}'>"
            f"{user}</a></p>"
            for user in USERS
        )

    def token(self, form: dict[str, str]) -> dict[str, str] | None:
        verifier, user = form["code_verifier"], form["code"]
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if challenge != self._asked["code_challenge"] or user == "verifier":
            return None  # as for a code that was stolen: who has it has no verifier
        now_s = int(time.time())
        claims = {"iss": self.issuer, "sub": user, "aud": CLIENT, "iat": now_s, "exp": now_s + 60}
        claims |= {"nonce": self._asked["nonce"], "preferred_username": user} | USERS[user]
        key = self._other_key if user == "unsigned" else self._key
        return {
            "access_token": "a",
            "token_type": "Bearer",
            "id_token": jwt.encode({"alg": "RS256", "kid": "k1"}, claims, key),
        }


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    found = Provider()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/authorization_endpoint":
                self._send("text/html", found.page(url.query), 200)
            else:
                document = found.document(url.path)
                self._send("application/json", json.dumps(document), 404 if document is None else 200)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            token = found.token({name: values[0] for name, values in form.items()})
            self._send("application/json", json.dumps(token), 400 if token is None else 200)

        def _send(self, kind: str, body: str, status: int) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

    with serving(Handler) as port:
        found.issuer = f"http://localhost:{port}"  # another site than the console's 127.0.0.1
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip(CHROMIUM_MISSING)
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console") / "audit.log"


@pytest.fixture(scope="module")
def console(provider: Provider, audit_log: Path) -> Iterator[str]:
    roles = ("--oidc-viewer", "developers", "--oidc-editor", "admins")
    login = ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, *roles)
    with (
        Broker() as broker,
        console_of(broker.bootstrap_servers, *login, "--allow-changes", "--audit-log", str(audit_log)) as address,
    ):
        broker.create_topics("orders")
        yield address


@pytest.fixture
def page(running: Browser, console: str) -> Iterator[Page]:
    context = running.new_context(base_url=console)
    yield context.new_page()
    context.close()


def log_in(page: Page, user: str) -> None:
    """Follow the links that a person would: from the console to the provider and back, to the page asked for."""
    page.goto("/topics")
    page.get_by_role("link", name="Log in with your account").click()
    page.get_by_role("link", name=user, exact=True).click()


def test_a_viewer_looks_and_changes_nothing(page: Page) -> None:
    log_in(page, "vera")
    expect(page.locator("tbody th").first).to_have_text("orders")
    expect(page.locator("body")).to_contain_text("vera")
    expect(page.get_by_text("Create a topic")).to_have_count(0)


def test_an_editor_changes_and_is_named_in_the_log(page: Page, audit_log: Path) -> None:
    log_in(page, "edda")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("by-edda")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("body")).to_contain_text("by-edda")
    (line,) = [line for line in audit_log.read_text().splitlines() if "by-edda" in line]
    assert "edda" in line.replace("by-edda", "")


@pytest.mark.parametrize("user", ["nora", "state", *(pytest.param(each, marks=only_soaked) for each in OF_THE_TOKEN)])
def test_nobody_else_is_let_in(page: Page, user: str) -> None:
    log_in(page, user)
    expect(page.get_by_role("alert")).to_be_visible()
    page.goto("/topics")
    expect(page.get_by_role("link", name="Log in with your account")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("orders")
