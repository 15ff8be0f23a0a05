"""Two responses to one request, field by field: that of the recording, and that of now.

Not compared are times and throttling, the words of an error, epochs of leaders and groups, high watermarks, and
how much a Fetch brings: of records those that both responses have. Values that each cluster makes up are compared by
their roles.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.protocol.api import API_VERSIONS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.record.batches import batches
from kafkapy.recording.roles import RECORDS, Roles, role_of

JOIN_GROUP: Final = 11
FETCHES: Final = frozenset((1, 78))
"""Fetch and ShareFetch."""
NOT_COMPARED: Final = frozenset(
    ("throttleTimeMs", "errorMessage", "leaderEpoch", "partitionLeaderEpoch", "highWatermark", "lastStableOffset",
     "logStartOffset", "logAppendTimeMs", "currentLeader", "nodeEndpoints", "acquisitionLockTimeoutMs",
     "finalizedFeaturesEpoch", "authBytes", "sessionLifetimeMs", "memberEpoch", "groupEpoch", "assignmentEpoch")
)  # fmt: skip
KEYS: Final = (
    "name", "topic", "topicName", "partitionIndex", "partition", "index", "groupId", "nodeId", "brokerId", "apiKey",
    "resourceName",
)  # fmt: skip
"""The fields by which elements of two lists are the same one, whatever their order is."""
ERROR_FIELDS: Final = ("errorCode", "partitionErrorCode")
_CODES: Final = frozenset(each.value for each in ErrorCode)


@dataclass(frozen=True, slots=True)
class Difference:
    """`path`: of the field, as responses[orders].partitions[0].errorCode."""

    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.path}: recorded {self._shown(self.recorded)}, now {self._shown(self.now)}"

    def _shown(self, value: Any) -> str:
        is_error = self.path.rpartition(".")[2] in ERROR_FIELDS and isinstance(value, int)
        if is_error and value in _CODES:
            return f"{value} ({ErrorCode(value).name})"
        text = str(value)
        return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules for comparing the fields of one API."""

    roles: Roles
    is_join: bool
    may_lack: bool
    """Whether an element of a list may be in one response only: a Fetch names what there is at the time."""


def differences(header: RequestHeader, recorded: dict[str, Any], now: dict[str, Any], roles: Roles) -> list[Difference]:
    """Return how two responses differ, in the order of their fields; the roles learn what is new."""
    rules = _Rules(roles, header.api_key == JOIN_GROUP, header.api_key in FETCHES)
    if header.api_key == API_VERSIONS:  # what a broker can do is not what it did
        recorded = {"errorCode": recorded.get("errorCode")}
    return list(_compared(recorded, now, "", rules))


def _compared(recorded: Any, now: Any, path: str, rules: _Rules) -> Iterator[Difference]:
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name, each in recorded.items():
            if name in NOT_COMPARED or name.endswith(("Timestamp", "TimestampMs", "TimeMs")):
                continue
            below = f"{path}.{name}" if path else name
            role = role_of(name, is_join=rules.is_join)
            other = now.get(name)
            if name == RECORDS:
                yield from _records(each, other, below)
            elif role is None:
                yield from _compared(each, other, below, rules)
            elif not _meet(role, each, other, rules.roles):
                yield Difference(below, each, other)
    elif isinstance(recorded, list) and isinstance(now, list):
        yield from _lists(recorded, now, path, rules)
    elif recorded != now:
        yield Difference(path, recorded, now)


def _meet(role: str, recorded: Any, now: Any, roles: Roles) -> bool:
    if isinstance(recorded, list) and isinstance(now, list):
        pairs = zip(recorded, now, strict=False)
        return len(recorded) == len(now) and all(roles.meet(role, one, other) for one, other in pairs)
    return roles.meet(role, recorded, now)


def _lists(recorded: list[Any], now: list[Any], path: str, rules: _Rules) -> Iterator[Difference]:
    first = next((each for each in (*recorded, *now) if isinstance(each, dict)), {})
    named = [name for name in KEYS if name in first]
    key = next((name for name in named if first[name]), next(iter(named), None))
    if key is None:
        if len(recorded) != len(now):
            yield Difference(f"{path}.length", len(recorded), len(now))
        for index, (one, other) in enumerate(zip(recorded, now, strict=False)):
            yield from _compared(one, other, f"{path}[{index}]", rules)
        return
    role = role_of(key)
    left: dict[Any, list[Any]] = {}  # several may have one key: the synonyms of a configuration key
    for each in now:
        if isinstance(each, dict):
            left.setdefault(each.get(key), []).append(each)
    for index, one in enumerate(recorded):
        name = one[key] if role is None else rules.roles.now(role, one[key])
        other = _taken(left, name)
        if other is None and role is not None and len(recorded) == len(now):
            other = _taken(left, now[index].get(key))  # not known yet: by its place
        if other is not None:
            yield from _compared(one, other, f"{path}[{one[key]}]", rules)
        elif not rules.may_lack:
            yield Difference(f"{path}[{one[key]}]", "there", "missing")
    for name in () if rules.may_lack else left:
        yield Difference(f"{path}[{name}]", "missing", "there")


def _taken(left: dict[Any, list[Any]], name: Any) -> Any:
    """Remove and return the first element of this name; None if there is none."""
    found = left.get(name)
    if found is None:
        return None
    element = found.pop(0)
    if not found:
        del left[name]
    return element


def _records(recorded: Any, now: Any, path: str) -> Iterator[Difference]:
    """Compare the records that both have: offset, key, value and headers."""
    for number, (one, other) in enumerate(zip(_read(recorded), _read(now), strict=False)):
        if one != other:
            yield Difference(f"{path}[{number}]", one, other)


def _read(encoded: Any) -> list[tuple[Any, ...]]:
    if not isinstance(encoded, str):
        return []
    try:
        data = base64.b64decode(encoded, validate=True)
        return [
            (record.offset, record.key, record.value, record.headers)
            for batch in batches(data)
            if not batch.is_control
            for record in batch.records()
        ]
    except (binascii.Error, ValueError, KafkapyError):
        return []
