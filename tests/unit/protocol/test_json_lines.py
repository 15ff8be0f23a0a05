"""Messages as JSON, and the command that converts lines of them."""

import io
import json
import math
import re
import subprocess
import sys

import pytest

from kafkapy.cli.protocol import decode_lines, encode_lines, main
from kafkapy.errors import ProtocolError
from kafkapy.protocol.json_lines import from_json, to_json
from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.seams import FileRegion

FIND = {"key": "g", "keyType": 0}
LINE = {"message": "FindCoordinatorRequest", "version": 1, "json": FIND, "hex": "00016700"}


def run(convert, *lines):
    output = io.StringIO()
    status = convert([line if isinstance(line, str) else json.dumps(line) for line in lines], output)
    return status, [json.loads(line) for line in output.getvalue().splitlines()]


def without(line, key):
    return {name: value for name, value in line.items() if name != key}


def test_decode_fills_in_json_and_encode_fills_in_hex():
    assert run(decode_lines, without(LINE, "json"), "", without(LINE, "json")) == (0, [LINE, LINE])
    assert run(encode_lines, without(LINE, "hex")) == (0, [LINE])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "Expecting"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "recursion|Stack overflow"),  # Python 3.14 measures the stack
        ({**LINE, "hex": "0"}, "hexadecimal"),
        ({**LINE, "hex": "00"}, "cut short"),
        ({**LINE, "hex": "0001670000"}, "ends at byte 4 of 5"),
        ({**LINE, "hex": None}, 'needs "hex"'),
        ({**LINE, "version": "1"}, 'needs "version"'),
        ({**LINE, "version": True}, 'needs "version"'),
        ({**LINE, "version": 99}, "no version 99"),
        ({**LINE, "message": "Nobody"}, "no message is named 'Nobody'"),
    ],
)
def test_line_that_does_not_decode_gets_its_error_and_the_rest_goes_on(line, error):
    status, (failed, good) = run(decode_lines, line, LINE)
    assert status == 1
    assert re.search(error, failed["error"])
    assert good == LINE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"json": {"key": "g"}}, "lacks 'keyType'"),
        ({"json": {**FIND, "kye": 1}}, "has kye"),
        ({"json": {**FIND, "keyType": 300}}, "cannot hold"),
        ({"json": {**FIND, "keyType": True}}, "keyType should be an integer, is True"),
        ({"json": {**FIND, "keyType": 1.0}}, "should be an integer"),
        ({"json": {**FIND, "key": None}}, "key should be not null"),
        ({"json": {**FIND, "key": 1}}, "key should be a string"),
        ({"json": {**FIND, "key": "\ud800"}}, "cannot hold"),
        ({"json": []}, 'needs "json"'),
        ({"version": 4, "json": {"keyType": 0, "coordinatorKeys": "g"}}, "coordinatorKeys should be an array"),
        ({"version": 9}, "no version 9"),
        ({"message": "FetchRequest", "version": 17}, "lacks 'maxWaitMs'"),
    ],
)
def test_line_that_does_not_encode_gets_its_error(changes, error):
    status, (failed,) = run(encode_lines, {**without(LINE, "hex"), **changes})
    assert status == 1
    assert error in failed["error"]


@pytest.mark.parametrize(
    ("value", "error"),
    [("AAAA", "not a UUID"), ("!" * 22, "not a UUID"), (5, "a string")],
)
def test_uuid_that_is_none_is_refused_with_its_place(value, error):
    topic = {"topicId": value, "partitions": []}
    with pytest.raises(ProtocolError, match=error) as caught:
        from_json("OffsetCommitRequest", 10, {"groupId": "", "generationIdOrMemberEpoch": 0, "memberId": "",
                  "groupInstanceId": None, "topics": [topic]})  # fmt: skip
    assert "topics[0].topicId" in str(caught.value)


class BytesFile:
    def pread(self, length, position):
        return b"region"[position : position + length]


def test_records_are_base64_wherever_they_lie():
    for records in (b"region", memoryview(b"region"), FileRegion(BytesFile(), 0, 6)):
        partition = PartitionData(records=records)
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        written = to_json(response, 12)
        assert written["responses"][0]["partitions"][0]["records"] == "cmVnaW9u"
        assert from_json("FetchResponse", 12, written).encode(12) == response.encode(12)


def test_tagged_fields_at_their_default_are_left_out_and_unknown_ones_kept():
    response = FetchResponse(unknown_tagged_fields={99: b"\1"})
    written = to_json(response, 16)
    assert "nodeEndpoints" not in written
    assert written["unknownTaggedFields"] == {"99": "AQ=="}
    assert from_json("FetchResponse", 16, written) == response
    with pytest.raises(ProtocolError, match="should be an object with tags"):
        from_json("FetchResponse", 16, {**written, "unknownTaggedFields": {"x": ""}})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1.5, 0.0])
def test_floats_that_json_has_no_number_for_are_strings(value):
    written = to_json(ClientQuotaRecord(key="k", value=value), 0)
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    read = from_json("ClientQuotaRecord", 0, written)
    assert read.encode(0) == ClientQuotaRecord(key="k", value=value).encode(0)


def test_command_shows_its_usage(capsys):
    assert main(["--help"]) == 0
    assert "decode|encode" in capsys.readouterr().out
    assert main(["fly"]) == 2
    assert capsys.readouterr().err == "kafkapy: expected decode|encode, not fly (see kafkapy protocol -h)\n"


def test_command_reads_bytes_and_loads_nothing_it_does_not_need():
    program = (
        "import sys; from kafkapy.cli.protocol import main; status = main(['decode']);"
        "heavy = {'typer', 'rich', 'pydantic', 'asyncio', 'uvloop'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    lines = b"\xff\xfe\n" + json.dumps(without(LINE, "json")).encode() + b"\n"
    done = subprocess.run([sys.executable, "-c", program], input=lines, capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    assert done.returncode == 1
    failed, good = map(json.loads, done.stdout.splitlines())
    assert "error" in failed
    assert good == LINE
