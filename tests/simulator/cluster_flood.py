"""A client of a simulated cluster that sends more than a broker may hold: frames that arrive in part, and wait."""

import asyncio
from contextlib import suppress
from typing import ClassVar, Final

from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulator.cluster_clients import CALL_S, VERSIONS, Client, LostError
from tests.simulator.network import SimClient
from tests.support.wire import request_frame

CONNECTIONS: Final = 6
FRAME_BYTES: Final = 90_000
"""All connections together send much more than RequestMemory.peak_bytes, with the properties of cluster_memory.py."""
TAIL_BYTES: Final = 100
PAUSE_S: Final = (0.05, 0.4)


class Flooder(Client):
    """Sends large requests on many connections of a broker, all but their ends; then the ends. Each is answered."""

    enough_progress: ClassVar[int] = 1

    async def step(self) -> None:
        rng = self.world.loop.rng
        node_id = rng.choice([computer.node_id for computer in self.world.brokers])
        clients: list[SimClient] = []
        try:
            while len(clients) < CONNECTIONS:
                clients.append(SimClient(await self.connections.connect(node_id)))
            answered = await asyncio.gather(*(self._send_slowly(client) for client in clients))
        finally:
            for client in clients:
                client.channel.close()
        if not all(answered):
            raise LostError("not all were answered")
        self.progress += 1
        await asyncio.sleep(rng.uniform(0.1, 0.5))

    async def _send_slowly(self, client: SimClient) -> bool:
        """Send a request, its end later; return whether it was answered."""
        part = PartitionProduceData(0, records=bytes(FRAME_BYTES))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("", topic_id=bytes(16), partition_data=[part])]
        )
        frame = request_frame(request, VERSIONS[request.API_KEY], correlation_id=1)
        data = len(frame).to_bytes(4, "big") + frame
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(2 * CALL_S):
                sending = asyncio.ensure_future(client.send(data[:-TAIL_BYTES]))
                await asyncio.sleep(self.world.loop.rng.uniform(*PAUSE_S))
                await sending
                await client.send(data[-TAIL_BYTES:])
                await client.receive_frame()
                return True
        return False
