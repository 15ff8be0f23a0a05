"""`kafkapy protocol decode|encode`: frames to JSON and back, one per line, for debugging a client.

decode reads {"message", "version", "hex"} and adds "json"; encode reads {"message", "version", "json"} and adds "hex".
If a line fails, "error" is added to it instead, and the exit status is 1. Blank lines are ignored. The message is named
as its spec, such as FetchRequest; headers (RequestHeader v1 or v2) are messages of their own.
kafkapy.protocol.json_lines describes the JSON of each type.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kafkapy.cli.usage import print_usage
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import message_type
from kafkapy.protocol.json_lines import from_json, to_json

USAGE = "decode|encode"


class TextOutput(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


def decode_lines(stdin: Iterable[str | bytes], stdout: TextOutput) -> int:
    """Write each line with "json" added from its "hex"; return the exit status."""
    return _convert(stdin, stdout, _decode)


def encode_lines(stdin: Iterable[str | bytes], stdout: TextOutput) -> int:
    """Write each line with "hex" added from its "json"; return the exit status."""
    return _convert(stdin, stdout, _encode)


def main(arguments: list[str]) -> int:
    """Run with the arguments after `kafkapy protocol`; return the exit status."""
    if arguments in (["decode"], ["encode"]):
        convert = decode_lines if arguments == ["decode"] else encode_lines
        return convert(sys.stdin.buffer, sys.stdout)
    return print_usage(arguments, "protocol", USAGE, __doc__)


def _convert(stdin: Iterable[str | bytes], stdout: TextOutput, fill_in: Callable[[dict[str, Any]], None]) -> int:
    status = 0
    for line in stdin:
        if not line.strip():
            continue
        row: dict[str, Any] = {}
        try:
            row = _parse(line)
            fill_in(row)
        except (ProtocolError, ValueError, RecursionError) as error:
            row["error"] = str(error)
            status = 1
        stdout.write(json.dumps(row) + "\n")
        stdout.flush()
    return status


def _parse(line: str | bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("the line is not a JSON object")
    return row


def _decode(row: dict[str, Any]) -> None:
    kind = message_type(_value(row, "message", str))
    version: int = _value(row, "version", int)
    data = bytes.fromhex(_value(row, "hex", str))
    row["json"] = to_json(kind.decode(data, version), version)


def _encode(row: dict[str, Any]) -> None:
    version: int = _value(row, "version", int)
    message = from_json(_value(row, "message", str), version, _value(row, "json", dict))
    row["hex"] = message.encode(version).hex()


def _value(row: dict[str, Any], key: str, kind: type) -> Any:
    value = row.get(key)
    if type(value) is not kind:
        raise ValueError(f'the line needs "{key}": {kind.__name__}')
    return value
