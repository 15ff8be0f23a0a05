"""Three combined nodes under a load that takes all of their cores for 60 s: nobody is elected, nobody is fenced.

The load is of 12 connections to a node with five requests of 10 ms each, which the loop meets as it meets 600 clients
whose turns take 1 ms. The planted fault is one that Apache Kafka's threads cannot have: what nodes ask each other waits
for the turns of all clients.
"""

import pytest

from kafkapy.reactor.turn_queue import TurnQueue
from tests.simulator.saturation import saturate


def test_a_load_that_saturates_combined_nodes_elects_and_fences_nobody() -> None:
    outcome = saturate()
    assert min(outcome.busy) > 0.99, "all cores are saturated"
    assert outcome.served > 15_000
    assert (outcome.elections, outcome.fencings) == (0, 0)


def test_a_node_whose_peers_wait_for_the_turns_of_all_clients_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TurnQueue, "_is_pass_over", lambda self, now: False)
    outcome = saturate(seconds=20)
    assert outcome.elections > 0
