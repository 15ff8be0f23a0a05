"""The console's pages in a TestClient: its sessions, and the forms that a browser sends."""

from typing import Any, Final

from starlette.testclient import TestClient

from kafkapy.console.security import Sessions

OWN: Final = "http://127.0.0.1:8080"
"""The base URL of the clients: the origin of the console's own pages."""


def sessions_of(client: TestClient) -> Sessions:
    return next(each.kwargs["sessions"] for each in client.app.user_middleware)  # type: ignore[attr-defined]


def csrf_of(client: TestClient) -> str:
    """Return the token that forms of the client's session send; it has one after its first request."""
    sessions = sessions_of(client)
    return sessions.csrf_token(client.cookies[sessions.cookie])


def post(client: TestClient, kind: str, **fields: object) -> Any:
    """Ask for a change, as a form of the console's own pages does."""
    return client.post(f"/change/{kind}", data={"csrf": csrf_of(client), **fields}, headers={"origin": OWN})
