"""The generator: a schema that no Kafka has becomes a module that works, a bad one is refused, ours are current."""

import copy
import importlib.util
import re
import sys

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.protocol.codegen.emit import emit_module
from kafkapy.protocol.codegen.generate import PROTOCOL, SPECS, generate, main
from kafkapy.protocol.codegen.spec import SpecError, parse_spec, parse_versions, snake_case
from kafkapy.protocol.primitives import EncodeError

of_checkout = pytest.mark.skipif(not SPECS.is_dir(), reason="an installed package lies apart from its specs")

INVENTED = {
    "apiKey": 900,
    "type": "request",
    "listeners": ["broker"],
    "name": "InventedRequest",
    "validVersions": "0-3",
    "flexibleVersions": "2+",
    "commonStructs": [
        {
            "name": "Place",
            "versions": "0+",
            "fields": [
                {"name": "Host", "type": "string", "versions": "0+", "default": "nowhere"},
                {"name": "Port", "type": "uint16", "versions": "0+", "default": "0x1f90"},
            ],
        }
    ],
    "fields": [
        {"name": "IsOn", "type": "bool", "versions": "0+", "default": "true"},
        {"name": "Tiny", "type": "int8", "versions": "0+", "default": "-1"},
        {"name": "Small", "type": "int16", "versions": "0+"},
        {"name": "Unsigned", "type": "uint16", "versions": "0+"},
        {"name": "Plain", "type": "int32", "versions": "0+"},
        {"name": "UnsignedPlain", "type": "uint32", "versions": "0+"},
        {"name": "Big", "type": "int64", "versions": "0+"},
        {"name": "Ratio", "type": "float64", "versions": "0+"},
        {"name": "TopicId", "type": "uuid", "versions": "0+"},
        {"name": "Name", "type": "string", "versions": "0+"},
        {"name": "From", "type": "string", "versions": "0+", "nullableVersions": "1+", "default": "null"},
        {"name": "Data", "type": "bytes", "versions": "0+", "nullableVersions": "0+", "default": "null"},
        {"name": "Records", "type": "records", "versions": "0+", "nullableVersions": "0+"},
        {"name": "Home", "type": "Place", "versions": "0+"},
        {"name": "Away", "type": "Place", "versions": "1+", "nullableVersions": "1+", "default": "null"},
        {
            "name": "Rows",
            "type": "[]Row",
            "versions": "0+",
            "fields": [
                {"name": "Key", "type": "string", "versions": "0+", "mapKey": True},
                {"name": "Cells", "type": "[]Cell", "versions": "0+", "nullableVersions": "2+", "fields": [
                    {"name": "Numbers", "type": "[]int64", "versions": "0+"},
                    {"name": "Ids", "type": "[]uuid", "versions": "1+", "nullableVersions": "1+", "default": "null"},
                    {"name": "Flags", "type": "[]bool", "versions": "0+", "ignorable": True},
                    {"name": "Words", "type": "[]string", "versions": "0+"},
                    {"name": "Blobs", "type": "[]bytes", "versions": "0+"},
                ]},
                {"name": "Note", "type": "string", "versions": "2+", "taggedVersions": "2+", "tag": 0},
            ],
        },
        {"name": "Mark", "type": "int32", "versions": "1+", "taggedVersions": "3+", "tag": 0, "default": "5"},
        {"name": "Stop", "type": "Place", "versions": "2+", "taggedVersions": "2+", "tag": 1, "ignorable": True},
        {"name": "Extra", "type": "Place", "versions": "2+", "taggedVersions": "2+", "tag": 2,
         "nullableVersions": "2+", "default": "null", "ignorable": True},
        {"name": "Levels", "type": "[]int16", "versions": "2+", "taggedVersions": "2+", "tag": 3,
         "nullableVersions": "2+", "ignorable": True},
        {"name": "Payload", "type": "records", "versions": "2+", "taggedVersions": "2+", "tag": 4,
         "nullableVersions": "2+", "ignorable": True},
    ],
}  # fmt: skip


@pytest.fixture
def invented(tmp_path):
    """The module generated from INVENTED, imported."""
    path = tmp_path / "invented_request.py"
    path.write_text(emit_module(parse_spec(INVENTED)), "utf-8")
    module_spec = importlib.util.spec_from_file_location("invented_request", path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["invented_request"] = module
    module_spec.loader.exec_module(module)
    yield module
    del sys.modules["invented_request"]


def full_message(module, version):
    """Every field that `version` has, at a value other than its default."""
    cell = module.Cell(numbers=[1, -(2**63)], flags=[True, False], words=["", "ü"], blobs=[b"", b"\0"])
    row = module.Row(key="k", cells=[cell, module.Cell()])
    message = module.InventedRequest(
        is_on=False, tiny=-128, small=-2, unsigned=65535, plain=-3, unsigned_plain=2**32 - 1, big=2**63 - 1, ratio=-0.5,
        topic_id=bytes(range(16)), name="naïve", from_="f", data=b"d" * 200, records=b"r" * 20000,
        home=module.Place(host="h", port=1), rows=[row],
    )  # fmt: skip
    if version >= 1:
        message.away = module.Place(host="a", port=2)
        message.mark = 6
        cell.ids = [bytes(16), bytes(range(16))]
    if version >= 2:
        row.note = "n"
        message.rows.append(module.Row(key="null", cells=None))
        message.stop.port = 3
        message.extra = module.Place()
        message.levels = None
        message.payload = b"p" * 20000
        message.home.unknown_tagged_fields = {1: b"unknown"}
    return message


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_invented_message_round_trips_with_all_types_set(invented, version):
    message = full_message(invented, version)
    data = message.encode(version)
    assert invented.InventedRequest.decode(data, version) == message
    for end in range(0, len(data), 7):
        with pytest.raises(ProtocolError):
            invented.InventedRequest.decode(data[:end], version)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_invented_message_round_trips_at_its_defaults(invented, version):
    message = invented.InventedRequest()
    assert invented.InventedRequest.decode(message.encode(version), version) == message
    assert message.is_on is True
    assert message.home == invented.Place(host="nowhere", port=8080)
    assert message.away is None


def test_invented_message_has_the_bytes_that_the_format_says(invented):
    message = invented.InventedRequest(
        small=1, name="ab", home=invented.Place(host="h", port=9), rows=[invented.Row(key="k", cells=None, note="n")]
    )
    fixed = "01 ff 0001 0000 00000000 00000000 0000000000000000 0000000000000000" + "00" * 16
    strings = "03 6162" + "00" + "00" + "00"  # name; then from, data and records, all null
    places = "02 68 0009 00" + "ff"  # home with no tags; away is null
    rows = "02" + "02 6b" + "00" + "01 00 02 02 6e"  # one row: key, null cells, one tag: number 0, two bytes, note
    assert message.encode(3).hex() == (fixed + strings + places + rows + "00").replace(" ", "")


def test_invented_message_puts_tags_in_order_and_nullable_struct_behind_a_marker(invented):
    message = invented.InventedRequest(extra=invented.Place(host="", port=1), levels=[7], mark=9)
    tags = "03" + "00 04 00000009" + "02 05 01 01 0001 00" + "03 03 02 0007"
    assert message.encode(3).hex().endswith(tags.replace(" ", ""))


def test_null_where_an_invented_version_has_none_raises(invented):
    with pytest.raises(EncodeError, match="from_ is null"):
        invented.InventedRequest().encode(0)
    with pytest.raises(EncodeError, match="cells is null"):
        invented.InventedRequest(rows=[invented.Row(cells=None)]).encode(1)


def test_field_before_it_was_tagged_is_written_in_its_place(invented):
    assert invented.InventedRequest(mark=9).encode(1).hex().endswith("00000009")
    assert invented.InventedRequest(mark=9).encode(3).hex().endswith("010004" + "00000009")


def test_only_the_first_field_may_be_given_by_its_position_and_none_of_ints_alone(invented):
    spec = copy.deepcopy(INVENTED)
    spec["fields"] = [
        {"name": "Low", "type": "int32", "versions": "0+"},
        {"name": "Is", "type": "bool", "versions": "0+"},
    ]
    spec["commonStructs"] = []

    assert re.search(r"def __init__\(\s*self,\s*\*,\s*low: int = 0", emit_module(parse_spec(spec)))
    assert invented.Place("h", port=1).host == "h"
    with pytest.raises(TypeError, match="positional"):
        invented.Place("h", 1)


def test_versions_with_one_layout_share_their_functions(invented):
    spec = copy.deepcopy(INVENTED)
    spec["validVersions"] = "0-9"
    assert emit_module(parse_spec(spec)).count("def _read_invented_request_v") == 4
    assert emit_module(parse_spec(spec)).count("def _read_place_v") == 2


def broken(**changes):
    return {**copy.deepcopy(INVENTED), **changes}


def with_field(**field):
    return broken(fields=[*INVENTED["fields"], {"name": "Bad", "type": "int32", "versions": "0+", **field}])


BAD_SPECS = [
    (broken(validVersions="none"), "closed range"),
    (broken(validVersions="1+"), "closed range"),
    (broken(validVersions="x"), "not a range"),
    (broken(type="letter"), "unknown message type"),
    (broken(colour="red"), "unknown keys"),
    (with_field(shape="round"), "unknown keys"),
    (with_field(type="int128"), "no struct int128"),
    (with_field(name="Big"), "two fields of one name"),
    (with_field(default="4294967296"), "out of range"),
    (with_field(type="[]int32", default="null"), "null default"),
    (with_field(type="[]int32", default="5"), "default"),
    (with_field(type="string", fields=[]), "has no fields"),
    (with_field(taggedVersions="2+"), "go together"),
    (with_field(taggedVersions="1+", tag=5), "not flexible"),
    (with_field(taggedVersions="2+", tag=6), "tags must be"),
    (with_field(type="Place", fields=[]), "defined twice"),
    (with_field(type="Writer", fields=[]), "names of its own module"),
]


@pytest.mark.parametrize(("spec", "message"), BAD_SPECS)
def test_schema_that_is_not_understood_is_refused(spec, message):
    with pytest.raises(SpecError, match=message):
        emit_module(parse_spec(spec))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("TopicId", "topic_id"), ("ISR", "isr"), ("KRaftVersion", "kraft_version"), ("ACLKey", "acl_key"), ("V2", "v2")],
)
def test_names_become_pythons(name, expected):
    assert snake_case(name) == expected


def test_versions_are_parsed():
    assert [str(parse_versions(text)) for text in ("3", "1-4", "2+", "none")] == ["3", "1-4", "2-32767", "0--1"]


@of_checkout
def test_checked_in_files_are_what_the_specs_say(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


@of_checkout
def test_check_names_the_file_that_differs(capsys, monkeypatch, tmp_path):
    (tmp_path / "messages").mkdir()
    for name, text in generate(SPECS).items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "messages" / "left_over.py").write_text("", "utf-8")
    (tmp_path / "error_code.py").write_text("", "utf-8")
    monkeypatch.setattr("kafkapy.protocol.codegen.generate.PROTOCOL", tmp_path)
    assert main(["--check"]) == 1
    output = capsys.readouterr().out
    assert "error_code.py" in output
    assert "left_over.py" in output
    assert main([]) == 0
    assert main(["--check"]) == 0


@of_checkout
def test_every_message_has_its_module():
    modules = {path.stem for path in (PROTOCOL / "messages").glob("*.py")} - {"__init__"}
    assert len(modules) == len(list(SPECS.rglob("*.json"))) == 278 + 10


@of_checkout
def test_every_message_names_the_file_that_it_is_made_from():
    modules = {path for path in (PROTOCOL / "messages").glob("*.py") if path.stem != "__init__"}
    named = [re.search(r"from (protocol_specs/\S+\.json);", path.read_text("utf-8")) for path in modules]
    assert {SPECS.parent / found[1] for found in named if found} == set(SPECS.rglob("*.json"))
