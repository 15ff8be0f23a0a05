"""Subjects of a schema registry, shown by the console; and what is no registry."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from kafkapy.decoders.registry import MAX_VERSIONS, SchemaRegistry
from tests.support.http_server import QuietHandler, serving

HOSTILE = "<script>alert(1)</script>"
RESPONSES: dict[str, Any] = {
    "/subjects": ["trades-value", HOSTILE, 7],
    "/subjects/trades-value/versions": [1, 2],
    "/subjects/trades-value/versions/1": {"id": 5, "schema": '{"type": "string"}'},
    "/subjects/trades-value/versions/2": {
        "id": 6,
        "schemaType": "JSON",
        "schema": '{"title": "' + HOSTILE + '"}',
        "references": [{"name": "a", "subject": "s", "version": 3}],
    },
    "/subjects/many/versions": list(range(1, 200)),
    **{f"/subjects/many/versions/{number}": {"id": number, "schema": "1"} for number in range(1, 200)},
    "/subjects/broken/versions": {"error": 1},
}
NOT_FOUND = {"error_code": 40401, "message": "Subject not found."}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            found = RESPONSES.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(NOT_FOUND if found is None else found).encode())

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def page(registry: SchemaRegistry | None) -> TestClient:
    return TestClient(new_app(Settings(servers="127.0.0.1:1", registry=registry)), base_url="http://127.0.0.1:8080")


def test_subjects_are_listed_and_found(url: str) -> None:
    client = page(SchemaRegistry(url))
    shown = client.get("/subjects").text
    assert "2 subjects" in shown
    assert "/subject?name=trades-value" in shown
    assert HOSTILE not in shown
    assert "1 subject<" in client.get("/subjects?q=TRADES").text


def test_versions_are_shown_newest_first(url: str) -> None:
    shown = page(SchemaRegistry(url)).get("/subject?name=trades-value").text
    assert shown.index("Version 2") < shown.index("Version 1")
    assert ("JSON" in shown, "AVRO" in shown, "id 6" in shown, "refers to s, version 3" in shown) == (True,) * 4
    assert HOSTILE not in shown


def test_many_versions_are_not_all_asked_for(url: str) -> None:
    assert page(SchemaRegistry(url)).get("/subject?name=many").text.count("<section") == MAX_VERSIONS


@pytest.mark.parametrize(("name", "status"), [("missing", 404), ("broken", 502)])
def test_what_the_registry_does_not_answer_is_said(url: str, name: str, status: int) -> None:
    response = page(SchemaRegistry(url)).get("/subject", params={"name": name})
    assert (response.status_code, "The schema registry" in response.text) == (status, True)


def test_an_address_without_a_registry_is_no_lack_of_a_subject(url: str) -> None:
    response = page(SchemaRegistry(f"{url}/elsewhere")).get("/subjects")
    assert (response.status_code, "answers 404 to /subjects" in response.text) == (502, True)


def test_without_a_registry_the_option_is_named(tmp_path) -> None:
    for registry in (None, SchemaRegistry(str(tmp_path))):
        client = page(registry)
        assert "--schema-registry" in client.get("/subjects").text
        assert client.get("/subject?name=x").status_code == 400
