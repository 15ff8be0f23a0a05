"""Subscriptions, intervals, refusals, and how instances are forgotten; time is an argument."""

from collections.abc import Callable
from itertools import count

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.telemetry import instances as module
from kafkapy.telemetry.instances import ClientInstance, ClientInstances, Push
from kafkapy.telemetry.otlp import Point
from kafkapy.telemetry.received import MAX_OF_INSTANCE, ReceivedMetrics
from kafkapy.telemetry.subscriptions import RequestedMetrics, Subscription, subscription_id_of, wanted_of
from kafkapy.timer.wheel import TimingWheel
from kafkapy.types import ONE_UUID, ZERO_UUID

CLIENT = {"client_id": "orders-1", "client_software_name": "apache-kafka-java", "client_source_port": "4711"}
ID = bytes(range(16))
OTHER = bytes(range(1, 17))


class World:
    def __init__(self) -> None:
        self.wheel = TimingWheel(start_ms=0)
        ids = count(1 << 64)
        self.forgotten: list[bytes] = []
        self.instances = ClientInstances(
            self.wheel,
            lambda: next(ids).to_bytes(16, "big"),
            lambda instance: self.forgotten.append(instance.client_instance_id),
        )

    def send_request(self, now_ms: int, client: bytes = ID, connection: str = "c") -> ClientInstance:
        return self.instances.subscribe(client, connection, CLIENT, now_ms)

    def push(self, now_ms: int, *, subscription_id: int | None = None, **fields: object) -> ClientInstance:
        known = {each.client_instance_id: each.subscription_id for each in self.instances.known()}
        arguments = {"compression": 0, "size_bytes": 10, "is_last": False, **fields}
        push = Push(known.get(ID, 0) if subscription_id is None else subscription_id, **arguments)  # type: ignore[arg-type]
        return self.instances.push(ID, "c", CLIENT, now_ms, push, max_bytes=100)

    def expire(self, now_ms: int) -> None:
        for entry in self.wheel.advance(now_ms):
            entry.on_timeout(now_ms)


@pytest.fixture
def world() -> World:
    world = World()
    world.instances.update("all", {"metrics": "*", "interval.ms": "1000"})
    return world


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call()
    return ErrorCode(error.value.code)


MATCHES = [
    ("", True),
    ("client_id=orders-.*", True),
    ("client_id=orders", False),
    ("client_id=orders-.*,client_source_port=47..", True),
    ("client_id=orders-.*,client_source_port=5.*", False),
    ("client_source_address=.*", False),
    ("client_software_name = apache-kafka-(java|python) ", True),
    ("client_id=(?=orders).*", False),
]


@pytest.mark.parametrize(("match", "is_matched"), MATCHES)
def test_all_patterns_match_whole_attributes_that_are_known(match: str, is_matched: bool) -> None:
    assert Subscription.of({"metrics": "*", "match": match}).matches(CLIENT) is is_matched


def test_a_client_gets_the_metrics_of_all_matching_subscriptions() -> None:
    slow = Subscription.of({"metrics": "b,a", "interval.ms": "3600000"})
    assert wanted_of([slow], CLIENT) == RequestedMetrics(("a", "b"), 300_000)
    fast = Subscription.of({"metrics": "a,c", "interval.ms": "100"})
    other = Subscription.of({"metrics": "d", "match": "client_id=other"})
    assert wanted_of([slow, fast, other], CLIENT) == RequestedMetrics(("a", "b", "c"), 100)
    assert wanted_of([slow, Subscription.of({"metrics": "*"})], CLIENT) == RequestedMetrics(("*",), 300_000)
    assert wanted_of([], CLIENT) == RequestedMetrics((), 300_000)


def test_the_subscription_id_changes_with_what_is_wanted_and_by_whom() -> None:
    """tests/scenarios/test_client_telemetry.py holds it against Apache Kafka's."""
    wanted = [RequestedMetrics((), 300_000), RequestedMetrics(("*",), 300_000), RequestedMetrics(("*",), 100)]
    ids = {subscription_id_of(each, client) for each in wanted for client in (ID, OTHER)}
    assert len(ids) == 6
    assert all(-(1 << 31) <= each < 1 << 31 for each in ids)


def test_requests_before_the_interval_is_over_are_throttled(world: World) -> None:
    world.send_request(0)
    assert refused(lambda: world.send_request(999)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.push(10)
    assert refused(lambda: world.push(1009)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused(lambda: world.send_request(1009)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.push(1010)
    assert world.instances.throttle_count == 3


def test_a_changed_subscription_may_be_requested_at_once(world: World) -> None:
    before = world.send_request(0).subscription_id
    world.instances.update("all", {"metrics": "a", "interval.ms": "1000"})
    assert refused(lambda: world.push(1, subscription_id=before)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = world.send_request(2)
    assert after.requested == RequestedMetrics(("a",), 1000)
    assert after.subscription_id != before
    world.instances.update("all", {})
    assert world.send_request(3).requested == RequestedMetrics((), 300_000)


def test_a_push_that_is_refused_for_its_compression_or_size(world: World) -> None:
    world.send_request(0)
    assert refused(lambda: world.push(1, compression=5)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.send_request(2)
    assert refused(lambda: world.push(1001, size_bytes=101)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert refused(lambda: world.send_request(1002)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_last_push_need_not_wait_and_none_may_follow(world: World) -> None:
    world.send_request(0)
    world.push(1)
    world.push(2, is_last=True)
    assert refused(lambda: world.push(5000)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("reserved", [ZERO_UUID, ONE_UUID])
def test_a_push_without_an_instance_id_is_invalid(world: World, reserved: bytes) -> None:
    def push() -> None:
        world.instances.push(reserved, "c", CLIENT, 0, Push(0, 0, size_bytes=1, is_last=False), max_bytes=9)

    assert refused(push) == ErrorCode.INVALID_REQUEST
    assert len(world.instances) == 0


def test_a_client_without_an_id_gets_one(world: World) -> None:
    first, second = world.send_request(0, ZERO_UUID), world.send_request(0, ZERO_UUID)
    assert len({first.client_instance_id, second.client_instance_id, ZERO_UUID}) == 3


def test_instances_are_forgotten_with_their_connection(world: World) -> None:
    world.send_request(0, ID, "c")
    world.send_request(0, OTHER, "d")
    world.instances.disconnected("c")
    assert world.forgotten == [ID]
    world.instances.disconnected("c")
    world.expire(10_000_000)
    assert world.forgotten == [ID, OTHER]
    assert len(world.instances) == 0


def test_instances_are_forgotten_a_minute_after_their_last_request(world: World) -> None:
    world.send_request(0)
    world.push(30_000)
    world.expire(89_999)
    assert world.forgotten == []
    world.expire(90_000)
    assert world.forgotten == [ID]


def test_the_instance_unused_for_longest_makes_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INSTANCES", 2)
    world.send_request(0, ID)
    world.send_request(1, OTHER)
    world.push(2)
    world.send_request(3, ZERO_UUID)
    assert world.forgotten == [OTHER]


def test_attributes_are_cut(world: World) -> None:
    instance = world.instances.subscribe(ID, "c", {"client_id": "x" * 32_767}, 0)
    assert instance.attributes["client_id"] == "x" * 500


def test_deltas_add_up_and_other_values_replace() -> None:
    received = ReceivedMetrics()
    for value in (2.0, 3.0):
        received.add(ID, Point("sent.total", (), value, True, True))
        received.add(ID, Point("rate", (), value, False, False))
    received.add(ID, Point("rate", (), float("nan"), False, False))
    assert dict(received.of(ID)) == {("sent.total", (), True): 5.0, ("rate", (), False): 3.0}


def test_what_has_no_room_is_counted_and_not_kept() -> None:
    received = ReceivedMetrics()
    for index in range(MAX_OF_INSTANCE + 3):
        received.add(ID, Point(f"m{index}", (), 1, False, False))
    assert (received.series_count, received.dropped_count) == (MAX_OF_INSTANCE, 3)
    received.forget(ID)
    received.forget(ID)
    assert received.series_count == 0
