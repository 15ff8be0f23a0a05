"""Fetches of followers that wait for news, over a simulated network."""

import asyncio

from tests.simulator.loop import SimLoop
from tests.support.linked_brokers import LinkedBrokers


async def test_a_follower_without_news_waits_on_the_connection_that_it_has(loop: SimLoop) -> None:
    """Its fetch waits where the request came in, which is no task."""

    brokers = LinkedBrokers(loop, 2)
    brokers.create_topic("orders", 1, others=[2])
    await asyncio.sleep(10)
    assert brokers.network.connection_count == 1
    await brokers.close()
