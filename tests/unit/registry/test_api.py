"""The registry's HTTP API: what Confluent's answers, its codes and messages, and what it keeps in _schemas."""

import asyncio
import base64
import json
import threading

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("starlette")

from kafkapy.registry.election import Identity
from kafkapy.registry.http.app import MAX_WRITES
from tests.support.registries import AVRO, AVRO_2, AVRO_3, ApiClient, Leadership, MemoryStore


@pytest.fixture
def api() -> ApiClient:
    return ApiClient()


async def register(api: ApiClient, subject: str, schema: str = AVRO, **more: object) -> tuple[int, object]:
    return await api.call("POST", f"/subjects/{subject}/versions", {"schema": schema, **more})


async def test_a_schema_is_registered_once_and_found_by_id_version_and_text(api):
    status, response = await register(api, "s")
    assert status == 200
    assert (response["id"], response["version"], response.keys()) == (1, 1, {"id", "version", "guid"})
    assert (await register(api, "s"))[1]["version"] == 1, "the same again"
    assert (await register(api, "s", AVRO_2))[1]["id"] == 2
    assert (await register(api, "t"))[1]["id"] == 1, "an id is of a schema, not of a subject"
    assert (await api.call("GET", "/schemas/ids/1"))[1]["schema"] == AVRO
    assert (await api.call("GET", "/subjects/s/versions/latest"))[1]["version"] == 2
    assert (await api.call("POST", "/subjects/s", {"schema": AVRO_2}))[1]["version"] == 2
    assert await api.call("GET", "/subjects") == (200, ["s", "t"])
    assert await api.call("GET", "/subjects/s/versions") == (200, [1, 2])
    assert await api.call("GET", "/schemas/ids/1/subjects") == (200, ["s", "t"])
    versions = [{"subject": "s", "version": 1}, {"subject": "t", "version": 1}]
    assert await api.call("GET", "/schemas/ids/1/versions") == (200, versions)
    assert await api.call("GET", "/subjects/s/versions/1/schema") == (200, json.loads(AVRO))
    assert await api.call("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])


async def test_the_records_are_confluents(api):
    await register(api, "s")
    await api.call("PUT", "/config/s", {"compatibility": "FULL"})
    await api.call("PUT", "/config", {"compatibility": "none"})
    await api.call("PUT", "/mode/s", {"mode": "READWRITE"})
    await api.call("DELETE", "/subjects/s")
    await api.call("DELETE", "/subjects/s?permanent=true")
    await register(api, ":.ctx:s")
    schema = json.dumps(AVRO)
    assert [(key.decode(), value and value.decode()) for key, value in api.store.records] == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            f'{{"subject":"s","version":1,"id":1,"schemaType":"AVRO","schema":{schema},"deleted":false}}',
        ),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', '{"subject":"s","compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"READWRITE"}'),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', '{"subject":"s","version":1}'),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', None),
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
        (
            '{"keytype":"CONTEXT","tenant":"default","context":".ctx","magic":0}',
            '{"tenant":"default","context":".ctx"}',
        ),
        (
            '{"keytype":"SCHEMA","subject":":.ctx:s","version":1,"magic":1}',
            f'{{"subject":":.ctx:s","version":1,"id":1,"schemaType":"AVRO","schema":{schema},"deleted":false}}',
        ),
    ]


async def test_what_confluents_registry_wrote_is_read():
    """Records of its releases 5.0 to 8.0: without types and tenants, with md5, with fields that are not known."""
    store = MemoryStore()
    for key, value in [
        (
            '{"subject":"old","version":1,"magic":0,"keytype":"SCHEMA"}',
            {"subject": "old", "version": 1, "id": 7, "schema": '"int"'},
        ),
        ('{"magic":0,"keytype":"NOOP"}', None),
        ('{"subject":null,"magic":0,"keytype":"CONFIG"}', {"compatibilityLevel": "FULL_TRANSITIVE"}),
        (
            '{"keytype":"SCHEMA","subject":"new","version":3,"magic":1}',
            {
                "subject": "new",
                "version": 3,
                "id": 9,
                "md5": "AAAA",
                "schemaType": "JSON",
                "schema": "{}",
                "deleted": False,
                "x": 1,
            },
        ),
        ('{"keytype":"SOMETHING","magic":9}', {"a": 1}),
        ("no json", {"a": 1}),
    ]:
        store.append([(key.encode(), None if value is None else json.dumps(value).encode())])
    api = ApiClient(store)
    assert (await api.call("GET", "/schemas/ids/7"))[1]["schema"] == '"int"'
    assert (await api.call("GET", "/subjects/new/versions/latest"))[1]["schemaType"] == "JSON"
    assert await api.call("GET", "/config") == (200, {"compatibilityLevel": "FULL_TRANSITIVE"})
    assert (await register(api, "next"))[1]["id"] == 10, "ids go on"


NO_VERSION = (
    "The specified version 'x' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "
    '"latest"'
)
NO_SUBJECT = "The specified subject '__GLOBAL' is not a valid."
FIRST = "was not deleted first before being permanently deleted"
NO_LEVEL = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
NO_MODE = "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
ERRORS = [
    ("GET", "/subjects/none/versions", None, 40401, "Subject 'none' not found."),
    ("GET", "/subjects/none/versions/1", None, 40401, "Subject 'none' not found."),
    ("GET", "/subjects/s/versions/9", None, 40402, "Version 9 not found."),
    ("GET", "/subjects/s/versions/x", None, 42202, NO_VERSION),
    ("GET", "/subjects/s/versions/0", None, 42202, None),
    ("GET", "/schemas/ids/99", None, 40403, "Schema 99 not found"),
    ("GET", "/schemas/ids/99/subjects", None, 40403, "Schema not found"),
    ("POST", "/subjects/s", {"schema": '"long"'}, 40403, "Schema not found"),
    ("POST", "/subjects/none", {"schema": '"long"'}, 40401, "Subject 'none' not found."),
    ("POST", "/subjects/s/versions", {"schema": "{"}, 42201, None),
    ("POST", "/subjects/none/versions", {"schema": ""}, 42201, "Empty schema"),
    ("POST", "/subjects/s/versions", {"schema": "x", "schemaType": "XML"}, 42201, "Invalid schema type XML"),
    ("POST", "/subjects/s/versions", {"schema": AVRO_3}, 40901, None),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": AVRO}, 42208, NO_SUBJECT),
    ("POST", "/subjects/s/versions", {"schema": AVRO_2, "id": 5}, 42205, "Subject s in context  is not in import mode"),
    ("POST", "/subjects/s/versions", {"schema": AVRO_2, "references": [{}]}, 400, None),
    ("POST", "/subjects/s/versions", {"schema": 5}, 400, "schema is no str"),
    ("POST", "/subjects/s/versions", [], 400, None),
    ("POST", "/subjects/s/versions", b"{", 400, None),
    ("DELETE", "/subjects/s?permanent=true", None, 40405, f"Subject 's' {FIRST}"),
    ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407, f"Subject 's' Version 1 {FIRST}"),
    ("DELETE", "/subjects/none", None, 40401, "Subject 'none' not found."),
    ("GET", "/config/s", None, 40408, "Subject 's' does not have subject-level compatibility configured"),
    ("GET", "/mode/s", None, 40409, "Subject 's' does not have subject-level mode configured"),
    ("PUT", "/config/s", {"compatibility": "SIDEWAYS"}, 42203, NO_LEVEL),
    ("PUT", "/mode/s", {"mode": "SLEEP"}, 42204, NO_MODE),
    ("PUT", "/mode/s", {"mode": "IMPORT"}, 42205, "Cannot import since found existing subjects"),
    ("POST", "/compatibility/subjects/s/versions/9", {"schema": AVRO}, 40402, "Version 9 not found."),
    ("GET", "/nowhere", None, 404, "HTTP 404 Not Found"),
    ("PUT", "/subjects/s", None, 405, "HTTP 405 Method Not Allowed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"), ERRORS, ids=[f"{e[0]} {e[1]} {e[3]}" for e in ERRORS]
)
async def test_an_error_has_confluents_code_and_message(api, method, path, body, code, message):
    await register(api, "s")
    status, response = await api.call(method, path, body)
    assert (status, response["error_code"]) == (code if code < 1000 else code // 100, code)
    assert message is None or response["message"] == message


async def test_a_deletion_is_soft_until_it_is_permanent(api):
    await register(api, "s")
    await register(api, "s", AVRO_2)
    assert await api.call("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert await api.call("GET", "/subjects/s/versions") == (200, [2])
    assert await api.call("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert await api.call("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    assert await api.call("GET", "/subjects/s/versions?deletedAsNegative=true") == (200, [-1, 2])
    assert (await api.call("GET", "/subjects/s/versions/1"))[1]["error_code"] == 40402
    assert (await api.call("GET", "/subjects/s/versions/1?deleted=true"))[1]["deleted"] is True
    assert (await api.call("GET", "/schemas/ids/1"))[0] == 200, "data that was written can be read"
    assert (await api.call("DELETE", "/subjects/s/versions/1"))[1]["error_code"] == 40406
    assert await api.call("DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert (await api.call("GET", "/schemas/ids/1"))[1]["error_code"] == 40403
    assert await api.call("DELETE", "/subjects/s") == (200, [2])
    assert (await api.call("DELETE", "/subjects/s"))[1]["error_code"] == 40404
    assert await api.call("GET", "/subjects") == (200, [])
    assert await api.call("GET", "/subjects?deleted=true") == (200, ["s"])
    assert (await register(api, "s", AVRO_2))[1]["version"] == 3, "it comes back as a new version with its id"
    assert (await api.call("GET", "/subjects/s/versions/3"))[1]["id"] == 2
    assert await api.call("GET", "/subjects/s/versions?deleted=true") == (200, [3]), "the old version is gone"


@pytest.mark.parametrize(
    ("level", "new", "compatible"),
    [
        ("NONE", AVRO_3, True),
        ("BACKWARD", AVRO_2, True),
        ("BACKWARD", AVRO_3, False),
        ("FORWARD", AVRO_2, True),
        ("FORWARD", AVRO_3, False),
        ("FULL", AVRO_2, True),
        ("FULL", '{"type":"record","name":"T","fields":[]}', False),
        ("BACKWARD", '{"type":"record","name":"T","fields":[]}', True),
    ],
)
async def test_a_level_decides_what_may_follow(api, level, new, compatible):
    await register(api, "s")
    await api.call("PUT", "/config/s", {"compatibility": level})
    status, response = await api.call("POST", "/compatibility/subjects/s/versions/latest?verbose=true", {"schema": new})
    assert (status, response["is_compatible"]) == (200, compatible)
    assert bool(response["messages"]) != compatible
    assert ((await register(api, "s", new))[0] == 200) == compatible


@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD", "FULL"])
async def test_a_transitive_level_looks_at_every_version(api, level):
    """int, then long, then double: each may follow the one before; forward and full only without levels."""
    kinds = ["int", "long", "float"] if level == "BACKWARD" else ["float", "long", "int"]
    if level == "FULL":
        kinds = ["string", "bytes", "string"]
    texts = [
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": kind, "default": 0 if level != "FULL" else ""}],
            }
        )
        for kind in kinds
    ]
    other = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "default": 0}]})
    for text in (*texts, other):
        await api.call("PUT", "/config/s", {"compatibility": "NONE"})
        await register(api, "s", text)
    new = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "boolean", "default": True}]})
    for name, expected in ((level, True), (f"{level}_TRANSITIVE", False)):
        await api.call("PUT", "/config/s", {"compatibility": name})
        response = (await api.call("POST", "/compatibility/subjects/s/versions?verbose=true", {"schema": new}))[1]
        assert response["is_compatible"] is expected, (name, response)


async def test_the_reasons_name_the_version_the_old_schema_and_the_level(api):
    await register(api, "s")
    _, response = await api.call("POST", "/compatibility/subjects/s/versions/1?verbose=true", {"schema": AVRO_3})
    assert response == {
        "is_compatible": False,
        "messages": [
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'c' at path '/fields/0' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'c'}",
            "{oldSchemaVersion: 1}",
            f"{{oldSchema: '{AVRO}'}}",
            "{validateFields: 'false', compatibility: 'BACKWARD'}",
        ],
    }


async def test_another_type_is_incompatible(api):
    await register(api, "s")
    _, response = await register(api, "s", '{"type":"object"}', schemaType="JSON")
    assert "Incompatible because of different schema type" in response["message"]


async def test_references_are_resolved_held_and_listed(api):
    inner = '{"type":"record","name":"In","fields":[]}'
    outer = '{"type":"record","name":"Out","fields":[{"name":"in","type":"In"}]}'
    reference = {"name": "In", "subject": "inner", "version": 1}
    assert (await register(api, "outer", outer))[1]["error_code"] == 42201
    message = (await register(api, "outer", outer, references=[reference]))[1]["message"]
    assert 'No schema reference found for subject "inner" and version 1' in message
    await register(api, "inner", inner)
    assert (await register(api, "outer", outer, references=[{**reference, "version": -1}]))[0] == 200
    stored = (await api.call("GET", "/subjects/outer/versions/1"))[1]
    assert stored["references"] == [reference], "latest was version 1 then"
    assert await api.call("GET", "/subjects/inner/versions/1/referencedby") == (200, [2])
    for path in ("/subjects/inner", "/subjects/inner/versions/1"):
        assert (await api.call("DELETE", path))[1] == {
            "error_code": 42206,
            "message": "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=inner,version=1}.",
        }
    assert (await api.call("POST", "/subjects/outer", {"schema": outer, "references": [reference]}))[1]["version"] == 1
    within = outer.replace('"In"}', f"{inner}}}")
    assert (await api.call("POST", "/subjects/outer", {"schema": within}))[1]["version"] == 1, (
        "sent with its references"
    )
    await api.call("DELETE", "/subjects/outer")
    assert (await api.call("DELETE", "/subjects/inner"))[0] == 200


async def test_contexts_have_ids_and_settings_of_their_own(api):
    assert (await register(api, "s", AVRO_2))[1]["id"] == 1
    assert (await register(api, ":.a:s"))[1]["id"] == 1
    assert (await api.call("POST", "/contexts/.a/subjects/t/versions", {"schema": AVRO_2}))[1]["id"] == 2
    assert await api.call("GET", "/contexts") == (200, [".", ".a"])
    assert await api.call("GET", "/subjects") == (200, [":.a:s", ":.a:t", "s"])
    assert await api.call("GET", "/contexts/.a/subjects") == (200, [":.a:s", ":.a:t"])
    assert await api.call("GET", "/subjects?subjectPrefix=:.a:t") == (200, [":.a:t"])
    assert (await api.call("GET", "/contexts/.a/schemas/ids/1"))[1]["schema"] == AVRO
    assert (await api.call("GET", "/schemas/ids/1"))[1]["schema"] == AVRO_2
    assert (await api.call("GET", "/schemas/ids/1?subject=:.a:s"))[1]["schema"] == AVRO
    await api.call("PUT", "/contexts/.a/config", {"compatibility": "NONE"})
    assert await api.call("GET", "/config/:.a:") == (200, {"compatibilityLevel": "NONE"})
    assert await api.call("GET", "/config/:.a:s?defaultToGlobal=true") == (200, {"compatibilityLevel": "NONE"})
    assert (await register(api, ":.a:s", AVRO_3))[0] == 200
    assert (await register(api, "s", AVRO_3))[0] == 409
    assert (await api.call("GET", "/subjects/t/versions/1"))[1]["subject"] == ":.a:t", "looked for in other contexts"
    assert (await api.call("DELETE", "/contexts/.a"))[1]["error_code"] == 42211


async def test_modes(api):
    await api.call("PUT", "/mode", {"mode": "READONLY"})
    assert await register(api, "s") == (
        422,
        {"error_code": 42205, "message": "Subject s in context  is in read-only mode"},
    )
    assert await api.call("GET", "/mode/s?defaultToGlobal=true") == (200, {"mode": "READONLY"})
    await api.call("PUT", "/mode/s", {"mode": "IMPORT"})
    assert (await register(api, "s", AVRO, version=7, id=77))[1]["id"] == 77
    assert await api.call("GET", "/subjects/s/versions") == (200, [7])
    assert (await register(api, "s", AVRO_3, version=8, id=77))[1]["error_code"] == 42205
    assert (await register(api, "s", AVRO_3, version=8, id=78))[0] == 200, "imports are not compared"
    assert await api.call("DELETE", "/mode/s") == (200, {"mode": "IMPORT"})
    assert await api.call("DELETE", "/mode") == (200, {"mode": "READONLY"})
    assert (await register(api, "t"))[1]["id"] == 77
    assert (await register(api, "t", AVRO_2))[1]["id"] == 79


async def test_settings_are_changed_one_by_one(api):
    assert await api.call("PUT", "/config/s", {"compatibility": "full", "normalize": True}) == (
        200,
        {"compatibility": "FULL", "normalize": True},
    )
    assert (await api.call("PUT", "/config/s", {"compatibilityGroup": "v"}))[1]["compatibility"] == "FULL"
    assert await api.call("GET", "/config/s") == (
        200,
        {"compatibilityLevel": "FULL", "normalize": True, "compatibilityGroup": "v"},
    )
    assert (await api.call("DELETE", "/config/s"))[1]["compatibilityLevel"] == "FULL"
    assert (await api.call("GET", "/config/s"))[1]["error_code"] == 40408
    assert await api.call("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})


async def test_versions_of_another_compatibility_group_are_not_compared(api):
    await api.call("PUT", "/config/s", {"compatibilityGroup": "major"})
    await register(api, "s", metadata={"properties": {"major": "1"}})
    assert (await register(api, "s", AVRO_3, metadata={"properties": {"major": "1"}}))[0] == 409
    assert (await register(api, "s", AVRO_3, metadata={"properties": {"major": "2"}}))[0] == 200


async def test_metadata_and_rules_are_kept_passed_on_and_part_of_a_schema(api):
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    assert (await register(api, "s", metadata={"properties": {"owner": "a"}}, ruleSet=rules))[0] == 200
    assert (await register(api, "s"))[1]["version"] == 1, "without any, those of the latest are meant"
    second = (await register(api, "s", metadata={"properties": {"owner": "b"}}))[1]
    assert (second["version"], second["id"], second["ruleSet"]) == (2, 2, rules), "shown, as they were not given"
    third = (await register(api, "s", "", metadata={"properties": {"owner": "c"}}))[1]
    assert (third["version"], third["schema"]) == (3, AVRO), "a schema of metadata alone has the text of the latest"
    assert (await api.call("GET", "/subjects/s/metadata?key=owner&value=a"))[1]["version"] == 1
    assert (await api.call("GET", f"/schemas/guids/{second['guid']}"))[1]["metadata"] == {"properties": {"owner": "b"}}


async def test_an_alias_stands_for_a_subject(api):
    await register(api, "long-name")
    await api.call("PUT", "/config/short", {"alias": "long-name"})
    assert (await api.call("GET", "/subjects/short/versions/1"))[1]["subject"] == "long-name"


async def test_a_subject_may_have_any_characters(api):
    assert (await register(api, "a%2Fb%20c%3Fd"))[0] == 200
    assert await api.call("GET", "/subjects") == (200, ["a/b c?d"])
    assert (await api.call("GET", "/subjects/a%2Fb%20c%3Fd/versions/1"))[1]["subject"] == "a/b c?d"


async def test_json_and_protobuf(api):
    pytest.importorskip("jsonschema")
    pytest.importorskip("proto_schema_parser")
    assert (await register(api, "j", '{"type": "string"}', schemaType="JSON"))[1]["id"] == 1
    assert (await api.call("GET", "/schemas/ids/1"))[1]["schema"] == '{"type":"string"}'
    text = 'syntax = "proto3";\n\nmessage M {\n  string a = 1;\n}\n'
    assert (await register(api, "p", text, schemaType="PROTOBUF"))[1]["id"] == 2
    assert (await api.call("GET", "/schemas/ids/2"))[1]["schema"] == text
    served = (await api.call("GET", "/schemas/ids/2?format=serialized"))[1]["schema"]
    assert b"default.proto" in base64.b64decode(served)
    assert (await register(api, "p", served, schemaType="PROTOBUF"))[1]["version"] == 1, "the same as a descriptor"


async def test_lists_come_in_pages(api):
    for name in "abcd":
        await register(api, name)
    assert await api.call("GET", "/subjects?offset=1&limit=2") == (200, ["b", "c"])
    assert [each["subject"] for each in (await api.call("GET", "/schemas?latestOnly=true&limit=1"))[1]] == ["a"]
    assert (await api.call("GET", "/subjects?limit=x"))[0] == 404


async def test_who_has_no_password_is_refused():
    api = ApiClient(users={"alice": "secret"})
    assert (await api.call("GET", "/subjects"))[0] == 401
    response = await api.response("GET", "/subjects", auth=("alice", "wrong"))
    assert (response.status_code, response.json()) == (401, {"error_code": 401, "message": "Unauthorized"})
    assert response.headers["www-authenticate"].startswith("Basic")
    assert await api.call("GET", "/subjects", auth=("alice", "secret")) == (200, [])


async def test_a_write_needs_a_leader():
    api = ApiClient(election=Leadership(None, is_leader=False))
    assert await register(api, "s") == (500, {"error_code": 50004, "message": "Leader not known."})
    assert await api.call("GET", "/subjects") == (200, [])
    api = ApiClient(election=Leadership(Identity("http", "127.0.0.1", 1), is_leader=False))
    assert (await register(api, "s"))[1]["error_code"] == 50003
    status, response = await api.call("DELETE", "/subjects/s", headers={"X-Forward": "false"})
    assert (status, response["error_code"]) == (500, 50003), "what was forwarded is not forwarded on"


async def test_a_registry_that_does_not_lead_answers_for_what_is_registered_and_never_writes(api):
    """Here the leader deletes the subject right after it was looked up."""
    await register(api, "s")
    other = ApiClient(api.store, Leadership(Identity("http", "127.0.0.1", 1), is_leader=False))
    known = other.registry.find_registered

    def known_then_deleted(*arguments: object, **options: object) -> object:
        found = known(*arguments, **options)
        if api.store.state.has("s", deleted=False):
            api.registry.delete_subject("s", permanent=False)
        return found

    other.registry.find_registered = known_then_deleted
    status, response = await register(other, "s")
    assert (status, response["version"]) == (200, 1)
    assert [json.loads(key)["keytype"] for key, _ in api.store.records] == ["SCHEMA", "DELETE_SUBJECT"]


async def test_the_media_type_is_the_one_that_is_accepted(api):
    vendor = "application/vnd.schemaregistry.v1+json"
    assert (await api.response("GET", "/subjects")).headers["content-type"] == vendor
    response = await api.response("GET", "/subjects", headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/json"


async def test_a_body_that_is_too_large_is_refused(api):
    assert (await api.call("POST", "/subjects/s/versions", b"x" * (5 << 20)))[0] == 413
    assert (await register(api, "s", '"int"' + " " * (1 << 20)))[1]["error_code"] == 42209


class StuckStore(MemoryStore):
    """Of a cluster that does not answer: writes wait until `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def begin_write(self) -> None:
        assert self.goes_on.wait(60)


async def test_writes_that_wait_for_the_cluster_keep_no_reader_waiting() -> None:
    store = StuckStore()
    api = ApiClient(store)
    assert (await api.call("POST", "/subjects/s/versions", {"schema": AVRO}))[0] == 200
    store.goes_on.clear()
    writes = [
        asyncio.ensure_future(api.call("POST", f"/subjects/s{number}/versions", {"schema": AVRO}))
        for number in range(2 * MAX_WRITES)
    ]
    try:
        async with asyncio.timeout(10):
            assert (await api.call("GET", "/schemas/ids/1"))[0] == 200
            assert (await api.call("POST", "/subjects/s/versions", {"schema": AVRO}))[0] == 200, "it is registered"
        assert not any(write.done() for write in writes)
    finally:
        store.goes_on.set()
    assert {status for status, _ in await asyncio.gather(*writes)} == {200}
