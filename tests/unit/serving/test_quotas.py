"""What a request of a client with quotas counts for: its time, step by step, and where its throttle is told."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.context import CloseConnection
from kafkapy.handlers.data import write_txn_markers
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, FORWARDED_APIS
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import RequestHeader, write_response_header
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.security.authorizer import AclOperation
from kafkapy.security.quotas import ClientQuotas
from kafkapy.serving.quotas import MAX_HELD_BYTES, WITHOUT_THROTTLE, Meter
from tests.simulator.loop import SimClock, SimLoop
from tests.support.controllers import Cluster
from tests.support.metadata_services import Deny, response_of, services

PRODUCE, API_VERSIONS, BROKER_HEARTBEAT, CREATE_TOPICS, FETCH, WRITE_TXN_MARKERS = 0, 18, 63, 19, 1, 27
CLUSTER_AUTHORIZATION_FAILED = 31


class Clock:
    """Says what it is told; work takes the time that it adds."""

    def __init__(self) -> None:
        self.now_ns = 0

    def work(self, ms: int) -> None:
        self.now_ns += ms * 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns


class World:
    def __init__(self, api_key: int = API_VERSIONS, *, apis: Any = BROKER_APIS, **quotas: float) -> None:
        self.clock = Clock()
        self.client_quotas = ClientQuotas(11, 1000)
        self.client_quotas.set_entity((("user", "u"),), quotas)
        self.apis = apis
        self.info = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "10.0.0.1", 1, principal="User:u")
        services: Any = self
        version = response_type(api_key).MAX_VERSION
        self.meter = Meter(services, RequestHeader(api_key, version, 7, "c"), self.info, frame_bytes=100)

    @property
    def percent_seconds(self) -> float:
        """What was counted of the client's time, in percent of a second."""
        (measured,) = self.client_quotas.request.rates(self.clock.monotonic_ms())
        return measured[1] * 10


def drive(meter: Meter, handler: Callable[[], Any]) -> Any:
    return asyncio.run(meter.drive(handler()))


def test_time_is_counted_but_while_the_request_waits() -> None:
    world = World(request_percentage=100.0)

    async def handle() -> str:
        world.clock.work(30)
        asyncio.get_running_loop().call_soon(world.clock.work, 500)
        await asyncio.sleep(0)
        world.clock.work(10)
        assert world.meter.charge(ApiVersionsResponse()).throttle_time_ms == 0
        assert world.percent_seconds == pytest.approx(4)
        world.clock.work(5)
        return "response"

    assert drive(world.meter, handle) == "response"
    assert world.percent_seconds == pytest.approx(4.5, rel=0.01), "encoding counts, too"
    assert world.info.throttle_ms == 0


def test_time_of_a_request_that_fails_is_counted() -> None:
    world = World(request_percentage=100.0)

    async def handle() -> None:
        world.clock.work(20)
        raise ApiError(42)

    with pytest.raises(ApiError):
        drive(world.meter, handle)
    assert world.percent_seconds == pytest.approx(2)


def test_a_request_without_a_response_mutes_all_the_same() -> None:
    world = World(request_percentage=0.0001)

    async def handle() -> str:
        world.clock.work(20)
        return "version 0 says which versions there are"

    drive(world.meter, handle)
    assert world.info.throttle_ms == 1000


async def test_a_request_that_is_cancelled_while_it_waits_ends() -> None:
    world = World(request_percentage=100.0)
    ended = []

    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = asyncio.create_task(world.meter.drive(handle()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


def test_what_a_worker_decodes_is_part_of_the_time() -> None:
    world = World(request_percentage=100.0)
    world.meter.timed(lambda: world.clock.work(40))()

    async def handle() -> None:
        world.meter.charge(ApiVersionsResponse())

    drive(world.meter, handle)
    assert world.percent_seconds == pytest.approx(4)


@pytest.mark.parametrize(("api_key", "apis"), [(BROKER_HEARTBEAT, CONTROLLER_APIS), (FETCH, CONTROLLER_APIS)])
def test_requests_between_nodes_are_exempt(api_key, apis) -> None:
    world = World(api_key, apis=apis, request_percentage=0.0001)
    world.meter.timed(lambda: world.clock.work(40))()
    assert world.meter.charge(BrokerHeartbeatResponse()).throttle_time_ms == 0


def test_who_is_no_node_is_not_exempt() -> None:
    world = World(BROKER_HEARTBEAT, request_percentage=0.0001)
    world.meter.timed(lambda: world.clock.work(40))()
    refused = BrokerHeartbeatResponse(error_code=CLUSTER_AUTHORIZATION_FAILED)
    assert world.meter.charge(refused).throttle_time_ms == 1000
    assert world.info.throttle_ms == 1000


def test_who_may_not_write_markers_is_not_exempt() -> None:
    """The response has an error a partition, and no place for a throttle time."""
    world = World(WRITE_TXN_MARKERS, request_percentage=0.0001)
    running = services(Cluster(), authorizer=Deny((AclOperation.ALTER, ""), (AclOperation.CLUSTER_ACTION, "")))
    marker = WritableTxnMarker(topics=[WritableTxnMarkerTopic("t", partition_indexes=[0])])
    request = WriteTxnMarkersRequest(markers=[marker])
    response = response_of(write_txn_markers.handle(running, world.meter.new_context(), request))
    world.meter.timed(lambda: world.clock.work(40))()
    assert world.meter.charge(response) is response
    assert world.info.throttle_ms == 1000


def test_a_produce_without_a_response_takes_no_time_and_mutes_nothing() -> None:
    world = World(PRODUCE, request_percentage=0.0001)

    async def handle() -> None:
        world.clock.work(40)
        world.meter.charge(None)
        world.clock.work(5)

    drive(world.meter, handle)
    assert world.info.throttle_ms == 0
    assert world.client_quotas.request.bucket_count == 0


def test_a_produce_without_a_response_counts_its_bytes() -> None:
    world = World(PRODUCE, request_percentage=0.0001, producer_byte_rate=5.0)
    world.meter.charge(None)
    assert world.info.throttle_ms == 10_000, "100 bytes are 10 a second over ten seconds"


def test_a_throttle_that_the_controller_told_of_a_part_counts_if_it_is_larger() -> None:
    world = World(CREATE_TOPICS, request_percentage=0.0001)
    world.meter.timed(lambda: world.clock.work(40))()
    response: Any = response_type(CREATE_TOPICS)()
    response.throttle_time_ms = 5000
    assert world.meter.charge(response).throttle_time_ms == world.info.throttle_ms == 5000


def test_a_shorter_throttle_does_not_end_the_one_of_another_request() -> None:
    world = World(request_percentage=0.0001)
    world.info.throttle_ms = 7000
    world.meter.timed(lambda: world.clock.work(40))()
    assert world.meter.charge(ApiVersionsResponse()).throttle_time_ms == 1000
    assert world.info.throttle_ms == 7000


def test_a_forwarded_request_gets_the_throttle_and_mutes_nothing() -> None:
    world = World(request_percentage=0.0001)
    world.info.is_forwarded = True
    world.meter.timed(lambda: world.clock.work(40))()
    assert world.meter.charge(ApiVersionsResponse()).throttle_time_ms == 1000
    assert world.info.throttle_ms == 0


def test_the_throttle_of_mutations_is_what_is_left_of_it() -> None:
    world = World(CREATE_TOPICS, controller_mutation_rate=1.0)
    count = world.meter.mutations(is_strict=False)
    count(21)
    world.clock.work(3000)
    response: Any = response_type(CREATE_TOPICS)()
    assert world.meter.charge(response).throttle_time_ms == 7000
    assert world.info.throttle_ms == 7000


@pytest.mark.parametrize("api_key", sorted(FORWARDED_APIS - WITHOUT_THROTTLE))
@pytest.mark.parametrize(("controllers_ms", "returned_ms"), [(0, 1000), (1000, 1000), (7654, 7654)])
def test_of_a_controllers_throttle_and_the_brokers_the_larger_is_returned(api_key, controllers_ms, returned_ms) -> None:
    """The throttle time is the first field of these responses."""
    world = World(api_key, request_percentage=0.0001)
    world.meter.timed(lambda: world.clock.work(40))()
    version = response_type(api_key).MAX_VERSION
    reported, expected = (encoded(api_key, version, throttle_ms) for throttle_ms in (controllers_ms, returned_ms))
    world.meter.charge_forwarded(reported)
    assert bytes(reported) == bytes(expected)
    assert world.info.throttle_ms == returned_ms


def test_the_one_response_without_a_throttle_time_is_passed_on_as_it_is() -> None:
    (api_key,) = WITHOUT_THROTTLE
    world = World(api_key, request_percentage=0.0001)
    world.meter.timed(lambda: world.clock.work(40))()
    version = response_type(api_key).MAX_VERSION
    reported = Writer()
    write_response_header(reported, api_key, version, 7)
    response_type(api_key)().write(reported, version)
    before = bytes(reported)
    world.meter.charge_forwarded(reported)
    assert bytes(reported) == before
    assert world.info.throttle_ms == 1000


def encoded(api_key: int, version: int, throttle_ms: int) -> Writer:
    out = Writer()
    write_response_header(out, api_key, version, 7)
    response: Any = response_type(api_key)()
    response.throttle_time_ms = throttle_ms
    response.write(out, version)
    return out


class Reconnecting:
    """A client whose requests come on connections of their own, in virtual time."""

    def __init__(self, loop: SimLoop, **quotas: float) -> None:
        self.clock = SimClock(loop)
        self.client_quotas = ClientQuotas(11, 1000)
        self.client_quotas.set_entity((("user", "u"),), quotas)
        self.apis = BROKER_APIS

    def connection(self) -> ConnectionInfo:
        return ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "10.0.0.1", 1, principal="User:u")

    def request(self, api_key: int, connection: ConnectionInfo, frame_bytes: int = 100) -> Meter:
        services: Any = self
        return Meter(services, RequestHeader(api_key, 0, 7, "c"), connection, frame_bytes)

    async def held_ms(self, api_key: int, connection: ConnectionInfo) -> int:
        before_ms = self.clock.monotonic_ms()
        await self.request(api_key, connection).await_throttle()
        return self.clock.monotonic_ms() - before_ms


async def test_the_first_produce_of_a_connection_waits_until_the_throttle_of_another_ends(loop: SimLoop) -> None:
    client = Reconnecting(loop, producer_byte_rate=100.0)
    throttle_ms = client.client_quotas.produce.record("u", "c", 10_000, client.clock.monotonic_ms())
    assert throttle_ms > 80_000
    connection = client.connection()
    assert await client.held_ms(FETCH, connection) == 0
    await asyncio.sleep(15)  # the windows have forgotten by then what the throttle was for
    assert await client.held_ms(PRODUCE, connection) == throttle_ms - 15_000
    assert connection.is_held
    assert await client.held_ms(PRODUCE, connection) == 0
    assert await client.held_ms(PRODUCE, client.connection()) == 0
    assert client.client_quotas.held_bytes == 0


async def test_nothing_waits_any_more_once_the_quota_is_raised(loop: SimLoop) -> None:
    client = Reconnecting(loop, producer_byte_rate=100.0)
    client.client_quotas.produce.record("u", "c", 10_000, client.clock.monotonic_ms())
    client.client_quotas.set_entity((("user", "u"),), {"producer_byte_rate": 1e6})
    assert await client.held_ms(PRODUCE, client.connection()) == 0


async def test_the_first_request_of_a_connection_waits_until_the_request_throttle_of_another_ends(
    loop: SimLoop,
) -> None:
    client = Reconnecting(loop, request_percentage=1.0)
    client.client_quotas.request.record("u", "c", 100, client.clock.monotonic_ms())
    connection = client.connection()
    assert await client.held_ms(FETCH, connection) == 1000
    assert await client.held_ms(FETCH, connection) == 0


async def test_what_is_held_has_a_bound(loop: SimLoop) -> None:
    client = Reconnecting(loop, producer_byte_rate=100.0)
    client.client_quotas.produce.record("u", "c", 10_000, client.clock.monotonic_ms())
    held = asyncio.create_task(client.request(PRODUCE, client.connection(), MAX_HELD_BYTES).await_throttle())
    await asyncio.sleep(0)
    with pytest.raises(CloseConnection):
        await client.request(PRODUCE, client.connection(), 1).await_throttle()
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    assert client.client_quotas.held_bytes == 0
