"""How a leader of the metadata quorum that stops leaves its part to another voter."""

import asyncio
import contextlib

from kafkapy.errors import KafkapyError
from kafkapy.runtime.quorum import Quorum


async def hand_over(quorum: Quorum, timeout_s: float) -> None:
    """Have the quorum's leader, if it is this node, resign, and return once another node leads.

    Until then this one votes: others may need its vote. timeout_s: at most the shortest election timeout, so that it
    does not stand itself. A deviation: Apache Kafka waits for up to 5 s, and does not stand while it does.
    """
    if not quorum.is_recovered or not quorum.is_leader or set(quorum.voters.ids) == {quorum.node_id}:
        return
    quorum.resign(quorum.leader_epoch)
    with contextlib.suppress(TimeoutError, KafkapyError):  # a failure of the disk is reported by on_fatal
        async with asyncio.timeout(timeout_s):
            await quorum.wait_until(lambda: quorum.leader_id not in (-1, quorum.node_id))
