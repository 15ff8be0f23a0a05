"""Request and response headers, which version of them a frame has, and the table of APIs."""

import csv
from pathlib import Path
from typing import Final

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import APIS, message_type, request_type, response_header_version, response_type
from kafkapy.protocol.api_table import GROUP_COORDINATOR_KEYS, METADATA_RECORDS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)
from kafkapy.protocol.primitives import Writer

OF_KAFKA: Final = Path(__file__).resolve().parents[2] / "golden" / "api_versions.tsv"

# api key, api version, correlation id, client id; tagged fields from the API's first flexible version on.
REQUEST_HEADERS = [
    (RequestHeader(3, 8, 7, "kcat"), "0003 0008 00000007 0004 6b636174"),
    (RequestHeader(3, 9, 7, "kcat"), "0003 0009 00000007 0004 6b636174 00"),
    (RequestHeader(18, 2, -1, None), "0012 0002 ffffffff ffff"),
    (RequestHeader(18, 3, 0, ""), "0012 0003 00000000 0000 00"),
    (RequestHeader(17, 1, 1, "é"), "0011 0001 00000001 0002 c3a9"),
]


@pytest.mark.parametrize(("header", "data"), REQUEST_HEADERS)
def test_request_header_is_read_and_written(header, data):
    frame = bytes.fromhex(data)
    out = Writer()
    write_request_header(
        out,
        api_key=header.api_key,
        api_version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    assert bytes(out) == frame
    assert read_request_header(memoryview(frame + b"body")) == (header, len(frame))


@pytest.mark.parametrize(("header", "data"), REQUEST_HEADERS)
def test_request_header_is_what_the_generated_codec_says(header, data):
    flexible = header.api_version >= APIS[header.api_key].flexible_from
    generated = message_type("RequestHeader").decode(bytes.fromhex(data), 2 if flexible else 1)
    assert generated.request_api_key == header.api_key
    assert generated.request_api_version == header.api_version
    assert (generated.correlation_id, generated.client_id) == (header.correlation_id, header.client_id)


@pytest.mark.parametrize(("header", "data"), REQUEST_HEADERS)
def test_request_header_cut_short_raises_protocol_error(header, data):
    frame = bytes.fromhex(data)
    for end in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_request_header(frame[:end])


def test_tagged_fields_of_a_request_header_are_skipped():
    frame = bytes.fromhex("0003 0009 00000007 0000 02 00 01 aa 05 00")
    assert read_request_header(frame) == (RequestHeader(3, 9, 7, ""), len(frame))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("7fff 0000 00000000 ffff", "api key 32767"),
        ("0004 0000 00000000 ffff", "api key 4"),
        ("0003 0009 00000007 fffe 00", "client id of -2 bytes"),
        ("0003 0008 00000007 0002 c328", "not UTF-8"),
        ("0003 0009 00000007 0000 ffffffff0f", "tagged fields"),
        ("0003 0009 00000007 0000 ffffffffff", "longer than 5 bytes"),
    ],
)
def test_hostile_request_header_raises_protocol_error(data, message):
    with pytest.raises(ProtocolError, match=message):
        read_request_header(bytes.fromhex(data))


def test_version_that_the_api_lacks_is_left_to_the_router():
    header, _ = read_request_header(bytes.fromhex("0012 7fff 00000001 ffff 00"))
    assert header.api_version == 32767


@pytest.mark.parametrize(
    ("api_key", "api_version", "data"),
    [
        (18, 0, "00000007"),
        (18, 3, "00000007"),
        (18, 4, "00000007"),
        (3, 8, "00000007"),
        (3, 9, "00000007 00"),
        (17, 1, "00000007"),
    ],
)
def test_response_header_is_v0_for_api_versions_and_v1_where_flexible(api_key, api_version, data):
    out = Writer()
    write_response_header(out, api_key, api_version, 7)
    assert bytes(out) == bytes.fromhex(data)
    assert len(out) == 4 + response_header_version(api_key, api_version)
    assert read_response_header(bytes(out) + b"body", api_key, api_version) == (7, len(out))


def test_every_api_has_its_classes_and_agrees_with_them():
    with OF_KAFKA.open(encoding="utf-8") as rows:
        last_versions = {int(row["api_key"]): int(row["max_version"]) for row in csv.DictReader(rows, delimiter="\t")}
    assert APIS.keys() == {key for key, last_version in last_versions.items() if last_version >= 0}  # -1: removed
    for key, api in APIS.items():
        request, response = request_type(key), response_type(key)
        assert (key, key) == (request.API_KEY, response.API_KEY)
        assert request.MIN_VERSION <= api.min_version <= api.max_stable_version <= api.max_version
        # Produce is specified from 3 on but answers 0 to 2 in name only; nothing is above the schema.
        assert api.max_version == request.MAX_VERSION == response.MAX_VERSION
        assert api.flexible_from == request.FLEXIBLE_FROM


def test_unknown_keys_and_names_raise_protocol_error():
    with pytest.raises(ProtocolError, match="no api has the key 4"):
        request_type(4)
    with pytest.raises(ProtocolError, match="no message is named 'Nothing'"):
        message_type("Nothing")


def test_records_of_the_logs_are_found_by_key():
    assert METADATA_RECORDS[2] == "TopicRecord"
    assert GROUP_COORDINATOR_KEYS[1] == "OffsetCommitKey"
    assert all(key == message_type(name).API_KEY for key, name in METADATA_RECORDS.items())


def test_error_codes_know_whether_to_try_again():
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.is_retriable
    assert not ErrorCode.NONE.is_retriable
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1
    assert ErrorCode.TOPIC_ALREADY_EXISTS.message == "Topic already exists."
