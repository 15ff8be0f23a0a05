"""What a reactor counts for /metrics: logins over TLS, and how long it accepts no connections."""

from pathlib import Path

import pytest

from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.tls_admission import ServerTls
from tests.simulator.loop import SimLoop
from tests.simulator.reactor_world import World
from tests.support.certificates import Authority, client_context, server_context

AUTHORITY = Authority()


@pytest.mark.parametrize(("has_principal", "logins"), [(True, 1), (False, 0)], ids=["SSL", "SASL_SSL"])
async def test_a_handshake_is_a_login_unless_another_one_follows(
    loop: SimLoop, tmp_path: Path, has_principal: bool, logins: int
) -> None:
    context = server_context(AUTHORITY.issue("broker"), tmp_path)
    tls = ServerTls(context, (lambda _: "User:a") if has_principal else None)

    world = World(loop, tls=tls)
    world.reactor.traffic = {}
    await world.connect_tls(client_context(AUTHORITY))
    client = world.connect()
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    await client.wait_end()
    counts = world.reactor.traffic.values()
    assert sum(each.logins for each in counts) == logins
    assert sum(each.logins_without_reauthentication for each in counts) == logins
    assert sum(each.failed_logins for each in counts) == 1


async def test_the_time_in_which_no_connection_is_accepted(loop: SimLoop) -> None:
    world = World(loop, ReactorLimits(max_connection_creation_rate=1))
    clients = [world.connect() for _ in range(11)]
    (acceptor,) = world.reactor.acceptors
    assert await world.round_trip_ms(clients[0]) < 1
    waited_ms = await world.round_trip_ms(clients[10])
    assert acceptor.blocked_ns == pytest.approx(waited_ms * 1e6, abs=5e6)
    assert acceptor.blocked_ns > 0
    before = acceptor.blocked_ns
    assert await world.round_trip_ms(clients[10]) < 1
    assert acceptor.blocked_ns == before, "it accepts again"
