"""What `broker.faults` refuses by name, which requests a fault hits, and what a fault that hits nothing says."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from kafkapy.embedded.faults.rules import LIVE, Fault, FaultError, FaultNeverHit, Faults, Selectors
from kafkapy.embedded.faults.shapes import LEVELS, Level, is_between_nodes, level_of, parts_of, put_errors, take_parts
from kafkapy.embedded.faults.whole_errors import versions_with_room
from kafkapy.protocol.api import APIS, LOGIN_APIS, request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import EncodeError, Message, MessageStruct


@pytest.fixture
def faults() -> Faults:
    found = Faults(lambda: None, lambda: ["orders", "payments"])
    LIVE.discard(found)  # the plugin would fail each test, as no broker has it
    return found


MISUSES: list[tuple[Callable[[Faults], object], str]] = [
    (lambda faults: faults.add("fail", "Produce", "INVALID_RECORD", partition="x"), "partition is a number from 0 on"),
    (
        lambda faults: faults.fail("Produce", "INVALID_RECORD", partition=-1),
        "partition is a number from 0 on, not '-1'",
    ),
    (lambda faults: faults.add("drop", "Produce", topic=5), "topic is a text, not 5"),
    (lambda faults: faults.add("drop", "Fetch", version="3"), "version is a number or a range of numbers, not '3'"),
    (lambda faults: faults.drop("Fetch", nth=2, times=3), "nth=2 hits one request: leave times out"),
    (lambda faults: faults.add("delay", "Fetch", ms="5"), "ms is a number from 1 on, not '5'"),
    (lambda faults: faults.fail("Produse", "NONE"), "there is no API 'Produse'; is it Produce"),
    (lambda faults: faults.fail("Produce", "NOT_LEADER"), "no error 'NOT_LEADER'; is it NOT_LEADER_OR_FOLLOWER"),
    (lambda faults: faults.fail("Produce", "NONE"), "NONE is no error"),
    (lambda faults: faults.fail("Produce", 6), "an error has a name, as 'NOT_LEADER_OR_FOLLOWER', not 6"),  # type: ignore[arg-type]
    (lambda faults: faults.drop(0), "an API has a name, as 'Produce', not 0"),  # type: ignore[arg-type]
    (
        lambda faults: faults.fail("Produce", "INVALID_RECORD", topic="ordres"),
        "no topic 'ordres'; there are: orders, pay",
    ),
    (
        lambda faults: faults.fail("Heartbeat", "NOT_COORDINATOR", topic="orders"),
        "Heartbeat names no topic, only group",
    ),
    (lambda faults: faults.fail("Produce", "INVALID_RECORD", version=99), "Produce has the versions 3 to 13, not 99"),
    (
        lambda faults: faults.fail("Produce", "UNKNOWN_TOPIC_ID", version=12),
        "at version 12 lacks UNKNOWN_TOPIC_ID: .*13",
    ),
    (lambda faults: faults.fail("Produce", "INVALID_RECORD", tpic="x"), "no selector 'tpic', only version, topic"),
    (lambda faults: faults.fail("Produce", "INVALID_RECORD", times=0), "times is a number from 1 on"),
    (lambda faults: faults.delay("SaslAuthenticate", ms=1), "belongs to the login"),
    (lambda faults: faults.drop("Vote"), "Vote is sent by nodes to each other, which no fault hits"),
    (lambda faults: faults.drop("WriteShareGroupState"), "WriteShareGroupState is sent by nodes to each other"),
    (
        lambda faults: faults.fail("DescribeLogDirs", "KAFKA_STORAGE_ERROR", version=range(1, 3)),
        r"DescribeLogDirs at version range\(1, 3\) has no room for an error: drop or delay it",
    ),
    (lambda faults: faults.delay("Fetch", ms=0), "ms is a number from 1 on"),
    (lambda faults: faults.drop("Fetch", when="later"), "when is 'before' or 'after', not 'later'"),  # type: ignore[arg-type]
    (lambda faults: faults.add("brake", "Fetch"), "no kind of fault 'brake', only fail, delay, drop, truncate"),
    (lambda faults: faults.drop("Fetch").probability(1.5, seed=1), "above 0 and at most 1, not 1.5"),
    (lambda faults: faults.drop("Fetch").probability("0.5", seed=1), "above 0 and at most 1, not '0.5'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("misuse", "text"), MISUSES)
def test_what_cannot_be_is_refused_by_name(faults: Faults, misuse: Callable[[Faults], object], text: str) -> None:
    with pytest.raises(FaultError, match=text):
        misuse(faults)


def hits(fault: Fault, count: int = 6) -> list[bool]:
    return [fault.is_active and fault.draw() for _ in range(count)]


def test_times_and_nth_and_pauses(faults: Faults) -> None:
    assert hits(faults.drop("Fetch", times=2)) == [True, True, False, False, False, False]
    assert hits(faults.drop("Fetch", nth=3)) == [False, False, True, False, False, False]
    fault = faults.drop("Fetch")
    with faults.paused(fault):
        assert hits(fault, 1) == [False]
    assert hits(fault, 1) == [True]
    fault.remove()
    assert hits(fault, 1) == [False]


def test_the_same_seed_hits_the_same_requests(faults: Faults) -> None:
    first, second = (hits(faults.drop("Fetch").probability(0.3, seed=7), 200) for _ in range(2))
    assert first == second
    assert 30 < sum(first) < 90


@pytest.mark.parametrize(
    ("selectors", "part", "is_hit"),
    [
        ({"topic": "ord*"}, {"topic": "orders", "partition": 1}, True),
        ({"topic": "ord*", "partition": 0}, {"topic": "orders", "partition": 1}, False),
        ({"partition": 0}, {"topic": "orders", "partition": 0}, True),
        ({"transactional_id": "a"}, {"topic": "orders"}, False),
        ({}, {}, True),
    ],
)
def test_parts_are_selected(faults: Faults, selectors: Selectors, part: dict[str, str | int], is_hit: bool) -> None:
    assert faults.drop("Produce", **selectors).matches_part(part) is is_hit


def test_headers_are_selected(faults: Faults) -> None:
    fault = faults.fail("Produce", "TRANSACTION_ABORTABLE", client_id="app-*", connection="127.0.0.1:*")
    assert fault.matches_header(12, "app-1", "127.0.0.1:5000")
    assert not fault.matches_header(11, "app-1", "127.0.0.1:5000"), "its clients do not know the error"
    assert not fault.matches_header(12, "other", "127.0.0.1:5000")
    assert not fault.matches_header(12, "app-1", "10.0.0.1:5000")
    assert not faults.drop("Produce", version=range(3, 9)).matches_header(9, "app-1", "")


def test_a_response_without_room_for_an_error_is_left_alone(faults: Faults) -> None:
    """It would look like a success with nothing in it."""
    fault = faults.fail("DescribeLogDirs", "KAFKA_STORAGE_ERROR")
    assert not fault.matches_header(2, "app", "127.0.0.1:5000")
    assert fault.matches_header(3, "app", "127.0.0.1:5000")
    assert faults.drop("DescribeLogDirs").matches_header(2, "app", "127.0.0.1:5000")
    with pytest.raises(FaultNeverHit, match="one at version 2, whose response has no room for an error"):
        faults.check_hit()


FAILABLE = [api.key for api in APIS.values() if api.key not in LOGIN_APIS and not is_between_nodes(api.key)]


@pytest.mark.parametrize("api_key", FAILABLE)
def test_the_newest_version_of_each_api_of_clients_has_room_for_an_error(api_key: int) -> None:
    assert APIS[api_key].max_version in versions_with_room(api_key)


def test_a_fault_that_hits_nothing_says_what_came_instead(faults: Faults) -> None:
    fault = faults.fail("Produce", "INVALID_RECORD", client_id="app")
    fault.matches_header(9, "rdkafka", "127.0.0.1:5000")
    faults.drop("EndTxn", may_miss=True)
    with pytest.raises(
        FaultNeverHit, match=r"never hit: Produce .* fails with INVALID_RECORD; there came one with client"
    ):
        faults.check_hit()
    faults.check_hit()  # that has ended it


LEVELLED = [
    (api.key, version)
    for api in APIS.values()
    if api.name in LEVELS
    for version in range(api.min_version, api.max_version + 1)
    if level_of(api.name, version) is not None
]


@pytest.mark.parametrize(("api_key", "version"), LEVELLED)
def test_each_part_of_a_request_gets_its_error_in_the_response(api_key: int, version: int) -> None:
    api = APIS[api_key]
    level = level_of(api.name, version)
    assert level is not None
    request = _full_request(api_key, version, level)
    parts = list(parts_of(api.name, version, request, lambda topic_id: topic_id.hex()))
    assert len(parts) == 2 ** _depth(level)
    assert len({str(part) for part in parts}) == (len(parts) if _selects(level) else 1)
    is_last = (lambda part: part == parts[-1]) if _selects(level) else (lambda part: True)
    errors = take_parts(level, request, is_last, ErrorCode.UNKNOWN_SERVER_ERROR, lambda topic_id: topic_id.hex())
    hit_count = sum(map(is_last, parts))
    assert _leaf_count(level, request, "request") == len(parts) - hit_count
    response = response_type(api_key)()
    put_errors(level, response, errors)
    if level.copies:
        put_errors(level, response, errors)  # in the place of the same
    found = response_type(api_key).decode(response.encode(version), version)
    assert _leaf_count(level, found, "response") == hit_count
    assert str(int(ErrorCode.UNKNOWN_SERVER_ERROR)) in repr(found)


def _full_request(api_key: int, version: int, level: Level) -> Message:
    """Return a request as the codec brings it, with two of each: by names, or by ids where it has those."""
    error: EncodeError | None = None
    for omitted in ("topic_id", "name", "topic"):
        request = request_type(api_key)()
        _fill(level, request, omitted)
        try:
            found = request_type(api_key).decode(request.encode(version), version)
        except EncodeError as raised:
            error = raised
            continue
        parts = [str(part) for part in parts_of(APIS[api_key].name, version, found, lambda topic_id: topic_id.hex())]
        if len(set(parts)) == len(parts) or not _selects(level):
            return found
    raise AssertionError(f"{APIS[api_key].name} v{version}: {error}")


def _fill(level: Level, holder: MessageStruct, omitted: str, outer: int = 0) -> None:
    kind = re.search(r"list\[(\w+)\]", str(vars(type(holder))["__annotations__"][level.request]))
    assert kind is not None
    made: list[Any] = []
    for number in (2 * outer + 1, 2 * outer + 2):
        if kind[1] in ("str", "int"):
            made.append(f"name-{number}" if kind[1] == "str" else number)
            continue
        item = getattr(import_module(type(holder).__module__), kind[1])()
        for name in {field for _, field in (*level.copies, *level.selects)} - {omitted}:
            if name not in item.field_names():
                continue
            was = getattr(item, name)
            value = bytes([number]) * 16 if name == "topic_id" else number if isinstance(was, int) else f"name-{number}"
            setattr(item, name, value)
        if level.inner is not None:
            _fill(level.inner, item, omitted, number)
        made.append(item)
    setattr(holder, level.request, made)


def _selects(level: Level) -> bool:
    return bool(level.selects) or (level.inner is not None and _selects(level.inner))


def _depth(level: Level) -> int:
    return 1 + (_depth(level.inner) if level.inner is not None else 0)


def _leaf_count(level: Level, holder: object, side: str) -> int:
    if side == "response" and not level.response:
        assert level.inner is not None
        return _leaf_count(level.inner, holder, side)
    items = getattr(holder, getattr(level, side)) or []
    return len(items) if level.inner is None else sum(_leaf_count(level.inner, item, side) for item in items)
