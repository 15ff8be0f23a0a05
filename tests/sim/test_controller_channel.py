"""The connection to an active controller on another node, which may fall silent."""

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.raft.voters import Endpoint
from kafkapy.runtime.broker.controller_channel import ControllerChannel
from kafkapy.runtime.peer import Peer, PeerSettings
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimNetwork
from tests.support.chance import SeededRandom

HOST, PORT = "10.0.0.9", 9093


def channel_over(loop: SimLoop, network: SimNetwork, leaders: list[int]) -> ControllerChannel:
    """Return a channel to the last of `leaders`, whose requests have 4.5 s."""

    def new_peer(host: str, port: int) -> Peer:
        return Peer(
            host,
            port,
            connector=SimConnector(network, "10.0.0.1"),
            clock=SimClock(loop),
            random=SeededRandom(1),
            settings=PeerSettings(),
        )

    return ControllerChannel(
        leader=lambda _refused_count: (leaders[-1], (Endpoint("CONTROLLER", HOST, PORT),)),
        listener_name="CONTROLLER",
        new_peer=new_peer,
        timeout_ms=4500,
    )


async def refused_after_ms(loop: SimLoop, channel: ControllerChannel) -> int:
    """Return after how many milliseconds a request fails with NOT_CONTROLLER."""
    begin_ms = loop.now_ms()
    with pytest.raises(ApiError) as raised:
        await channel.call(BrokerHeartbeatRequest())
    assert raised.value.code == ErrorCode.NOT_CONTROLLER
    return loop.now_ms() - begin_ms


async def test_a_controller_that_falls_silent_is_connected_to_anew_after_the_time_out(loop: SimLoop) -> None:
    """A request of the new connection reaches it again if the old one has died unnoticed between them."""
    network = SimNetwork(loop)
    listener = network.listen(HOST, PORT)  # accepts nothing, so nothing is answered
    channel = channel_over(loop, network, [9])
    for connection_count in (1, 2):
        assert 4500 <= await refused_after_ms(loop, channel) <= 4610
        assert network.connection_count == connection_count
    channel.close()
    listener.close()


async def test_a_request_does_not_wait_for_a_former_controller(loop: SimLoop) -> None:
    network, leaders = SimNetwork(loop), [9]
    listener = network.listen(HOST, PORT)
    channel = channel_over(loop, network, leaders)
    loop.call_later(1, leaders.append, 8)
    assert 1000 <= await refused_after_ms(loop, channel) <= 1210
    channel.close()
    listener.close()


async def test_a_heartbeat_is_given_up_before_the_session_expires_and_other_requests_by_their_key(
    loop: SimLoop,
) -> None:
    world = Machine(loop, broker_session_timeout_ms="6000", controller_socket_timeout_ms="20000")
    await world.boot()
    heartbeats, forwarding = world.server._lifecycle._controller, world.server._quorum_node.active
    assert [each._new_channel()._timeout_ms for each in (heartbeats, forwarding)] == [3000, 20_000]
    await world.stop()
