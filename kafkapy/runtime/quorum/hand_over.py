"""The last step of a voter before it stops: hand over leadership, and vote until another voter leads."""

import asyncio
import contextlib

from kafkapy.runtime.quorum.quorum import Quorum


async def hand_over(quorum: Quorum, timeout_s: float) -> None:
    """Return once another node leads the quorum; at once if one does, or if this node is no voter or the only one.

    If this node leads, or is elected meanwhile, it resigns. Until another one leads it answers and votes: others may
    need its vote, and those that voted for a candidate that stops would wait for their election timeout.

    timeout_s: at most the shortest election timeout. Deviation: Apache Kafka waits for up to 5 s, and meanwhile
    goes on with an election, but starts none. Here the wait is as long as an election takes, because a stop is to be
    short.
    """
    if not quorum.is_recovered or len(quorum.voters) < 2 or quorum.node_id not in quorum.voters.ids:
        return
    with contextlib.suppress(Exception):  # the time is over, or the quorum has failed, which on_fatal reports
        async with asyncio.timeout(timeout_s):
            await _wait_for_another_leader(quorum)


async def _wait_for_another_leader(quorum: Quorum) -> None:
    while True:
        if quorum.is_leader:
            quorum.resign(quorum.leader_epoch)
        await quorum.wait_until(lambda: quorum.is_leader or quorum.leader_id not in (-1, quorum.node_id))
        if not quorum.is_leader:
            return
