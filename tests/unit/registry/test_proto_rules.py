"""Protobuf: the published rules, a case each; the text that is stored; descriptors in Base64."""

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("proto_schema_parser")

from kafkapy.registry.formats.parsed import SchemaSyntaxError
from kafkapy.registry.formats.proto_rules import COMPATIBLE, differences
from kafkapy.registry.formats.protobuf import ProtobufSchema


def schema(body: str, syntax: str = "proto3", package: str = "") -> ProtobufSchema:
    head = f"package {package};" if package else ""
    return ProtobufSchema(f'syntax = "{syntax}"; {head} {body}')


def message(fields: str) -> str:
    return f"message M {{ {fields} }}"


CASES: list[tuple[str, str, list[str]]] = [
    (message("string a = 1;"), message("string a = 1;"), []),
    (message(""), message("string a = 1;"), ["FIELD_ADDED #/M/1"]),
    (message("string a = 1;"), message(""), ["FIELD_REMOVED #/M/1"]),
    (message("string a = 1;"), message("string b = 1;"), ["FIELD_NAME_CHANGED #/M/1"]),
    (message("string a = 1;"), message("bytes a = 1;"), []),
    (message("int32 a = 1;"), message("uint64 a = 1;"), []),
    (message("int32 a = 1;"), message("bool a = 1;"), []),
    (message("int32 a = 1;"), message("E a = 1;") + " enum E { Z = 0; }", ["ENUM_ADDED #/E"]),
    (message("int32 a = 1;"), message("sint32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("int32 a = 1;"), message("string a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("float a = 1;"), message("double a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("optional int32 a = 1;"), message("repeated int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"]),
    (
        message("optional string a = 1;"),
        message("repeated string a = 1;"),
        ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"],
    ),
    (message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;"), []),
    (message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("map<string, int32> a = 1;"), message("string a = 1;"), ["FIELD_KIND_CHANGED #/M/1"]),
    (message("string a = 1;"), "message N { string a = 1; }", ["MESSAGE_ADDED #/N", "MESSAGE_REMOVED #/M"]),
    (
        message("N a = 1; message N { int32 b = 1; }"),
        message("string a = 1;"),
        ["FIELD_KIND_CHANGED #/M/1", "MESSAGE_REMOVED #/M/N"],
    ),
    (
        message("N a = 1; message N { int32 b = 1; }"),
        message("O a = 1; message N { int32 b = 1; } message O { int32 b = 1; }"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1", "MESSAGE_ADDED #/M/O"],
    ),
    (
        "enum E { Z = 0; A = 1; }",
        "enum E { Z = 0; B = 1; C = 2; }",
        ["ENUM_CONST_ADDED #/E/2", "ENUM_CONST_CHANGED #/E/1"],
    ),
    ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; }", ["ENUM_CONST_REMOVED #/E/1"]),
    (message("string a = 1;"), message("oneof o { string a = 1; }"), ["ONEOF_ADDED #/M/o"]),
    (
        message("string a = 1; string b = 2;"),
        message("oneof o { string a = 1; string b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_ADDED #/M/o"],
    ),
    (
        message("oneof o { string a = 1; } string b = 2;"),
        message("oneof o { string a = 1; string b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    (
        message("oneof o { string a = 1; string b = 2; }"),
        message("oneof o { string a = 1; }"),
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    (message("oneof o { string a = 1; }"), message(""), ["ONEOF_REMOVED #/M/o"]),
    (
        message("oneof o { string a = 1; string b = 2; }"),
        message("oneof o { string b = 2; } string a = 1;"),
        ["ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1"],
    ),
    ("message A {} message B {}", "message B {} message A {}", ["MESSAGE_MOVED #/A", "MESSAGE_MOVED #/B"]),
    (message("M a = 1;"), message("M a = 1; M b = 2;"), ["FIELD_ADDED #/M/2"]),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES, ids=[str(each[2]) + each[1][:30] for each in CASES])
def test_a_change_has_its_difference(before, after, expected):
    original, update = schema(before), schema(after)
    found = sorted(f"{each.kind} {each.pointer}" for each in differences(original._files, update._files))
    assert found == sorted(expected)
    harmful = [each for each in expected if each.split()[0] not in COMPATIBLE]
    assert len(update.backward_errors(original, lenient=False)) == len(harmful)


def test_required_fields_of_proto2():
    before, after = schema(message(""), "proto2"), schema(message("required string a = 1;"), "proto2")
    (found,) = after.backward_errors(before, lenient=False)
    assert found == (
        '{errorType:"REQUIRED_FIELD_ADDED", description:"A required field  at path \'#/M/1\' in the %s schema is '
        'missing in the %s schema"}'
    )
    assert "REQUIRED_FIELD_REMOVED" in before.backward_errors(after, lenient=False)[0]


def test_another_package():
    before, after = schema(message(""), package="a"), schema(message(""), package="b")
    assert "PACKAGE_CHANGED" in after.backward_errors(before, lenient=False)[0]


def test_a_type_that_is_imported():
    inner = 'syntax = "proto3"; package in; message Inner { string n = 1; }'
    other = inner.replace("string", "int32")
    text = 'syntax = "proto3"; import "inner.proto"; message Outer { in.Inner it = 1; }'
    before, after = ProtobufSchema(text, (), {"inner.proto": inner}), ProtobufSchema(text, (), {"inner.proto": other})
    kinds = [each.split('"')[1] for each in after.backward_errors(before, lenient=False)]
    assert kinds == ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]


TEXT = """syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";

option java_package = "x.y";

message A {
  reserved 3, 5 to 7;

  option deprecated = true;

  optional string a = 1 [json_name = "z"];
  map<string, int32> m = 2;
  google.protobuf.Timestamp at = 11;

  oneof o {
    int32 x = 8;
    B y = 9;
  }

  message B {
    repeated bytes q = 1;
  }
  enum E {
    option allow_alias = true;
    Z = 0;
    Y = 0;
  }
}

service S {
  rpc X (A) returns (stream A);
}
"""


def test_the_text_is_stored_in_one_layout():
    scrambled = TEXT.replace("\n\n", "\n").replace("  ", "") + "// a comment\n"
    assert ProtobufSchema(scrambled).canonical == TEXT
    assert ProtobufSchema(TEXT).canonical == TEXT


def test_a_descriptor_in_base64_is_a_schema():
    first = ProtobufSchema(TEXT)
    again = ProtobufSchema(first.formatted("serialized"))
    assert again.canonical == TEXT.replace("google.protobuf.Timestamp at", ".google.protobuf.Timestamp at").replace(
        "    B y", "    .a.b.A.B y"
    ).replace("X (A) returns (stream A)", "X (.a.b.A) returns (stream .a.b.A)")
    assert again.backward_errors(first, lenient=False) == []


def test_normalized_texts_are_equal_whatever_the_order_was():
    one = schema("message M { string b = 2; string a = 1; } enum E { Z = 0; B = 2; A = 1; }").normalized()
    other = schema("enum E { Z = 0; A = 1; B = 2; } message M { string a = 1; string b = 2; }").normalized()
    assert one.canonical == other.canonical


def test_files_that_need_no_reference():
    text = 'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
    known = ProtobufSchema(text + ' message M { confluent.type.Decimal price = 1 [(confluent.field_meta).doc = "d"]; }')
    assert "confluent.type.Decimal price = 1 [(confluent.field_meta).doc" in known.canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; message M { strin }', "Syntax error at 1:37"),
        ('syntax = "proto3"; message M { N a = 1; }', "couldn't resolve name 'N'"),
        ('syntax = "proto3"; message M { string a = 1; string b = 1; }', "duplicate field number"),
        ('syntax = "proto3"; import "no.proto"; message M {}', "no.proto is imported, and no reference has this name"),
        ('syntax = "proto9"; message M {}', "unknown syntax proto9"),
        ("message", "Syntax error"),
        ("{}", "Syntax error"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(text, reason):
    with pytest.raises(SchemaSyntaxError, match=reason):
        ProtobufSchema(text)
