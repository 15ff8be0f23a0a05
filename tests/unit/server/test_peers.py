"""A node's connections to others: how soon they are tried again, and how large a response may be."""

from collections.abc import Callable

import pytest

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.protocol.messages.vote_request import VoteRequest
from kafkapy.runtime.peer import NoResponseError, Peer
from kafkapy.security.sasl import SaslClient
from kafkapy.server.login.node_login import node_login
from kafkapy.server.peers import Peers
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimNetwork
from tests.support.chance import SeededRandom
from tests.support.logins import PLAIN_MODULE, SCRAM_MODULE
from tests.support.metadata_services import PROPERTIES


def peers(loop: SimLoop, **properties: str) -> Peers:
    config, _ = load({**PROPERTIES, **{key.replace("_", "."): value for key, value in properties.items()}})
    network = SimNetwork(loop)
    return Peers(
        DynamicConfig(config),
        new_connector=lambda _loop: SimConnector(network, "10.0.0.1"),
        clock=SimClock(loop),
        random=SeededRandom(1),
        io_pool=SimIoPool(loop),
    )


@pytest.mark.parametrize(
    ("new_peer", "longest_ms"),
    [(Peers.new_controller_peer, 60), (Peers.new_broker_peer, 60), (Peers.new_raft_peer, 600)],
)
async def test_a_node_that_refuses_is_tried_again_as_soon_as_by_apache_kafka(
    loop: SimLoop, new_peer: Callable[[Peers, str, int], Peer], longest_ms: int
) -> None:
    peer = new_peer(peers(loop), "10.0.0.9", 9093)
    waited_ms = []
    for _ in range(8):
        begin_ms = loop.now_ms()
        with pytest.raises(NoResponseError):
            await peer.send_request(52, lambda _version: VoteRequest(), versions=(0, 2), timeout_ms=5000)
        waited_ms.append(loop.now_ms() - begin_ms)
    assert longest_ms * 0.6 <= max(waited_ms) <= longest_ms + 2
    peer.close()


async def test_a_response_may_hold_a_batch_as_large_as_a_request(loop: SimLoop) -> None:
    sizes = {"socket_request_max_bytes": "2000000", "replica_fetch_response_max_bytes": "300000"}
    assert peers(loop, **sizes).new_broker_peer("10.0.0.9", 9092)._settings.max_response_bytes == 2_300_000


def node_login_of(mechanism: str, options: str) -> SaslClient:
    key = f"listener.name.plaintext.{mechanism.lower()}.sasl.jaas.config"
    config, _ = load({**PROPERTIES, key: f"{MODULES[mechanism]} {options};"})
    return node_login(config, "PLAINTEXT", mechanism, SeededRandom(1))


MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE}


def test_a_node_logs_in_by_the_mechanism_of_the_listener() -> None:
    login = 'username="node" password="pw"'
    assert node_login_of("PLAIN", login).evaluate(b"") == b"\0node\0pw"
    assert (node_login_of("SCRAM-SHA-256", login).evaluate(b"") or b"").startswith(b"n,,n=node,r=")


@pytest.mark.parametrize("mechanism", [*MODULES])
@pytest.mark.parametrize("options", ['username="node"', 'password="pw"', 'user_node="pw"'])
def test_a_node_without_a_name_or_a_password_cannot_log_in(mechanism: str, options: str) -> None:
    with pytest.raises(ConfigError, match="it has no username or password"):
        node_login_of(mechanism, options)
