"""The channel between a test's process and a node's while the node starts, and after one of the two has ended."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkapy.embedded.controlled.channel import Begin, Channel, ChannelClosed
from kafkapy.embedded.controlled.node import ControlledNode
from kafkapy.embedded.controlled.node_faults import NodeFaults

PATIENCE_S = 60


def no_calls(name: str, *arguments: Any) -> Any:
    raise AssertionError((name, arguments))


def run(main: Coroutine[Any, Any, None]) -> None:
    """On a loop that has sockets, for a time that is bounded."""
    asyncio.run(asyncio.wait_for(main, PATIENCE_S))


def test_a_call_after_the_other_end_has_gone_fails() -> None:
    """A node that stops with its test would else never answer a request that a fault matches."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ended = asyncio.Event()
        channel = Channel(ours, no_calls, ended.set)
        channel.open(asyncio.get_running_loop())
        theirs.close()
        await ended.wait()
        assert await NodeFaults(lambda matched: channel.call("draw", matched)).draw([]) == []
        with pytest.raises(ChannelClosed):
            await channel.call("flush")

    run(main())


def test_a_node_that_starts_is_told_of_faults_and_records() -> None:
    """A test may set them in one thread while another starts the node."""
    ours, theirs = socket.socketpair()
    node = ControlledNode(theirs, Begin((1,), (), False, False))

    async def main() -> None:
        channel = Channel(ours, no_calls, lambda: None)
        channel.open(asyncio.get_running_loop())
        node._channel.open(asyncio.get_running_loop())
        assert await channel.call("records", True) is None
        assert await channel.call("faults", ()) is None
        node._channel.close()
        channel.close()

    run(main())
