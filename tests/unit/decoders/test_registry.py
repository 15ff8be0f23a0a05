"""Schemas over HTTP, as a schema registry serves them: with references, and Protobuf as serialized descriptors."""

import base64
import json
from collections.abc import Iterator

import pytest

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import Decoders
from kafkapy.decoders.registry import NotRegisteredError, SchemaRegistry
from tests.support.http_server import QuietHandler, serving

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
OUTER = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


def descriptor(name: str, message: str, *dependencies: str, field_type: str = "") -> str:
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptors.FileDescriptorProto(name=name, syntax="proto3", dependency=dependencies)
    kind = {"type": 11, "type_name": field_type} if field_type else {"type": 5}
    file.message_type.add(name=message).field.add(name="it", number=1, label=1, **kind)
    return base64.b64encode(file.SerializeToString()).decode()


def responses() -> dict[str, object]:
    return {
        "/schemas/ids/1": {
            "schema": json.dumps(OUTER),
            "references": [{"name": "Inner", "subject": "a/b inner", "version": 2}],
        },
        "/subjects/a%2Fb%20inner/versions/2": {"schema": json.dumps(INNER)},
        "/schemas/ids/2": {"schema": "{}", "schemaType": "JSON"},
        "/schemas/ids/3": {
            "schemaType": "PROTOBUF",
            "schema": "syntax...",
            "references": [{"name": "inner.proto", "subject": "inner", "version": 1}],
        },
        "/schemas/ids/3?format=serialized": {
            "schemaType": "PROTOBUF",
            "schema": descriptor("", "Outer", "inner.proto", field_type=".Inner"),
            "references": [{"name": "inner.proto", "subject": "inner", "version": 1}],
        },
        "/subjects/inner/versions/1": {"schema": "syntax..."},
        "/subjects/inner/versions/1?format=serialized": {"schema": descriptor("", "Inner")},
        "/schemas/ids/4": {"schemaType": "PROTOBUF", "schema": "syntax..."},
        "/schemas/ids/4?format=serialized": {"schemaType": "PROTOBUF", "schema": "syntax..."},
        "/schemas/ids/5": ["no schema"],
        "/schemas/ids/6": {
            "schema": json.dumps(OUTER),
            "references": [{"name": "Inner", "subject": "endless", "version": 1}],
        },
        "/schemas/ids/7": {"schema": "{}", "references": [{"name": "Inner"}]},
        "/subjects/endless/versions/1": {
            "schema": json.dumps(INNER),
            "references": [{"name": "Inner", "subject": "endless", "version": 1}],
        },
    }


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    known = responses()

    class Registry(QuietHandler):
        def do_GET(self) -> None:
            body = json.dumps(known.get(self.path, NOT_FOUND)).encode()
            self.send_response(200 if self.path in known else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Registry) as port:
        yield SchemaRegistry(f"http://127.0.0.1:{port}/")


def test_avro_with_a_reference_is_decoded(registry) -> None:
    pytest.importorskip("fastavro")
    decoded = Decoders("text", "avro", registry).value("t", None, bytes.fromhex("00 00000001 0e"))
    assert decoded.value == {"inner": {"n": 7}}


def test_json_schema_is_decoded(registry) -> None:
    assert Decoders("json-schema", "text", registry).key("t", b"\0\0\0\0\x02[2]").value == [2]


def test_protobuf_with_a_reference_is_decoded(registry) -> None:
    data = bytes.fromhex("00 00000003 00 0a 02 08 07")
    assert Decoders("text", "protobuf", registry).value("t", None, data).value == {"it": {"it": 7}}


@pytest.mark.parametrize(
    ("schema_id", "message"),
    [(4, "no serialized Protobuf"), (5, "has no schema"), (7, "without subject"), (99, "answers 404")],
)
def test_what_a_registry_does_not_serve_is_reported(registry, schema_id, message) -> None:
    with pytest.raises(DecodeError, match=message):
        registry.schema(schema_id)


def test_references_in_a_circle_are_followed_once(registry) -> None:
    assert registry.schema(6).references == (json.dumps(INNER),)


def test_a_registry_that_is_not_there_is_reported() -> None:
    with pytest.raises(DecodeError, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:1").schema(1)


@pytest.mark.parametrize(
    "body", [b"<html>404 Not Found</html>", b'{"error_code": 404}', b'{"detail": "Not Found"}', b"[" * 9999]
)
def test_a_web_server_that_has_no_registry_lacks_no_schema(body: bytes) -> None:
    """Of a subject that is missing one would look for its name: here the address is wrong."""

    class Other(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(body)

    with serving(Other) as port, pytest.raises(DecodeError, match="is the URL right") as raised:
        SchemaRegistry(f"http://127.0.0.1:{port}/").latest("orders-value")
    assert not isinstance(raised.value, NotRegisteredError)
