"""Sessions that outlive a restart of the console: by a key in a file that is its owner's alone."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kafkapy.console.app import new_app
from kafkapy.console.main import _session_key
from kafkapy.console.session_key import FILE, KeyFileError, session_key
from kafkapy.console.settings import Oidc, Settings
from tests.support.console_pages import OWN, csrf_of

TOKEN = "0123456789abcdef"
SETTINGS = Settings(servers="127.0.0.1:1", port=8080, token=TOKEN, allow_changes=True)
OIDC = Oidc(issuer="https://login.example", client_id="console", viewers=frozenset("ba"), editors=frozenset("c"))


def restarted(directory: Path, settings: Settings, cookies: object = None) -> TestClient:
    """A console after its start, with the cookies of a browser that it had before."""
    return TestClient(new_app(settings, session_key(directory, settings)), base_url=OWN, cookies=cookies)


def logged_in(page: TestClient) -> TestClient:
    assert (
        page.post("/login", data={"token": TOKEN}, headers={"origin": OWN}, follow_redirects=False).status_code == 303
    )
    return page


def status(page: TestClient) -> int:
    return page.get("/charts", headers={"accept": "application/json"}).status_code


def test_a_restart_logs_nobody_out_and_a_form_of_before_is_taken(tmp_path) -> None:
    before = logged_in(restarted(tmp_path, SETTINGS))
    form = {"csrf": csrf_of(before), "name": "orders"}
    after = restarted(tmp_path, SETTINGS, before.cookies)
    assert status(after) == 200
    sent = after.post("/change/create-topic", data=form, headers={"origin": OWN})
    assert (sent.status_code, "Create the topic orders" in sent.text) == (200, True)


@pytest.mark.parametrize(
    "changed",
    [
        {"token": "another token, as long"},
        {"oidc": OIDC},
        {"port": 8081},
        {"servers": "127.0.0.1:2"},
    ],
)
def test_what_a_login_depends_on_ends_sessions_when_it_changes(tmp_path, changed) -> None:
    before = logged_in(restarted(tmp_path, SETTINGS))
    assert status(before) == 200
    settings = replace(SETTINGS, **changed)
    after = restarted(tmp_path, settings)
    for each in before.cookies.jar:
        after.cookies.set(f"kafkapy-console-{settings.port}", each.value)
    assert status(after) == 401


def test_roles_have_a_part_in_the_key_and_their_order_has_none(tmp_path) -> None:
    key = session_key(tmp_path, replace(SETTINGS, oidc=OIDC))
    assert session_key(tmp_path, replace(SETTINGS, oidc=replace(OIDC, viewers=frozenset("ab")))) == key
    assert session_key(tmp_path, replace(SETTINGS, oidc=replace(OIDC, editors=frozenset("cd")))) != key


def test_the_file_is_its_owners_alone(tmp_path) -> None:
    directory = tmp_path / "state" / "kafkapy"
    key = session_key(directory, SETTINGS)
    path = directory / FILE
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(directory.stat().st_mode)) == (0o600, 0o700)
    assert os.listdir(directory) == [FILE]
    assert session_key(directory, SETTINGS) == key
    path.unlink()
    assert session_key(directory, SETTINGS) != key, "without the file all sessions end"


@pytest.mark.parametrize("harm", ["readable", "damaged", "empty", "symlink", "no directory"])
def test_a_file_that_is_not_safe_is_not_used(tmp_path, capsys, monkeypatch, harm) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "kafkapy" / FILE
    assert _session_key(SETTINGS) is not None
    if harm == "readable":
        path.chmod(0o640)
    elif harm == "symlink":
        os.rename(path, tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif harm == "no directory":
        monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    else:
        path.write_text("no digits" if harm == "damaged" else "")
    assert _session_key(SETTINGS) is None
    assert "sessions end with this process: " in capsys.readouterr().err


def test_without_a_login_nothing_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert _session_key(replace(SETTINGS, token=None)) is None
    assert os.listdir(tmp_path) == []


def test_the_key_of_another_user_is_refused(tmp_path, monkeypatch) -> None:
    session_key(tmp_path, SETTINGS)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(KeyFileError, match="not for this user alone"):
        session_key(tmp_path, SETTINGS)
