"""Recorded scenarios of transactions as text, so that those of two brokers can be compared.

Producer ids become p0, p1, ... in the order of their appearance, times that are set become "t", transactional ids lose
the number at their end. All else stays: codes, epochs, states, the records' versions and partitions in their order.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from kafkapy.protocol.api import request_type, response_type
from kafkapy.protocol.primitives import MessageStruct
from kafkapy.transaction.records import decode_record

OTHER_PRODUCER: Final = 7919
"""How far the id of "another producer" is from the current one's (transaction_script.producer_of)."""
_COUNT: Final = re.compile(r"-\d+$")


def lines_of(scenario: dict[str, Any]) -> list[str]:
    """Return the scenario, a line per step."""
    reader = _Reader()
    return [reader.line(step) for step in scenario["steps"]]


class _Reader:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def line(self, step: dict[str, Any]) -> str:
        shown: dict[str, Any] = {"records": [self._record(*each) for each in step.get("records", ())]}
        if "do" in step:
            shown["do"] = step["do"]
        else:
            key, version = step["api"]
            request = request_type(key).decode(bytes.fromhex(step["request"]), version)
            response = response_type(key).decode(bytes.fromhex(step["response"]), version)
            shown["request"] = [request.NAME, version, self._value("", request)]
            shown["response"] = self._value("", response)
        return json.dumps(shown)

    def _record(self, key: str, value: str | None) -> Any:
        record = decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        assert record is not None
        if record.metadata is None:
            return [_without_count(record.transactional_id), None]
        fields = {name: getattr(record.metadata, name) for name in record.metadata.__slots__}
        shown = {name: self._value(name, value) for name, value in fields.items() if name != "state"}
        return [_without_count(record.transactional_id), record.value_version, record.metadata.state.name, shown]

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, MessageStruct):
            return {each: self._value(each, getattr(value, each)) for each in value.field_names()}
        if isinstance(value, list):
            shown = [self._value(name, each) for each in value]
            return shown if name in ("partitions", "topics") else sorted(shown, key=json.dumps)
        if name in ("transactional_id", "transactional_ids", "v3_and_below_transactional_id"):
            return _without_count(value)
        if name.endswith(("producer_id", "producer_id_filters")):
            return self._producer(value)
        if name in ("last_update_ms", "start_ms", "transaction_start_time_ms"):
            return "t" if value > 0 else value
        return value

    def _producer(self, producer_id: int) -> Any:
        if producer_id < 0:
            return producer_id
        if producer_id - OTHER_PRODUCER in self._names:
            return f"not {self._names[producer_id - OTHER_PRODUCER]}"
        return self._names.setdefault(producer_id, f"p{len(self._names)}")


def _without_count(transactional_id: str) -> str:
    return _COUNT.sub("", transactional_id)


def text_of(scenarios: Iterable[dict[str, Any]]) -> list[str]:
    """Return all scenarios, each under its name."""
    return [line for scenario in scenarios for line in (f"# {scenario['name']}", *lines_of(scenario))]
