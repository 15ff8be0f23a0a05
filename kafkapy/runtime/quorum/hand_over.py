"""How a voter of the metadata quorum that stops helps the others to have a leader."""

import asyncio
import contextlib

from kafkapy.runtime.quorum.quorum import Quorum


async def hand_over(quorum: Quorum, timeout_s: float) -> None:
    """Return once another node leads the quorum; at once if one does, or if this node is no voter or the only one.

    If this node leads, or is elected meanwhile, it resigns. Until another one leads it answers and votes: others may
    need its vote, and a candidate that ended would leave those that voted for it to wait for their election timeout.

    timeout_s: at most the shortest election timeout. Deviation: Apache Kafka waits for up to 5 s, and does not stand
    meanwhile unless it did already. Here the wait is as long as an election takes, because a stop is to be short.
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
