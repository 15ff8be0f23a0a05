"""Who might keep the frame of a request that waits: a refused batch, quotas, the request log, another's flag."""

import asyncio
import weakref
from collections.abc import Mapping, Sequence

import pytest

from kafkapy.handlers.request_logger import request_logger
from kafkapy.handlers.router import Router
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.runtime.transaction_verification import TransactionalProducer, TransactionVerification
from kafkapy.security.authorizer import AllowAll
from kafkapy.security.quotas import ClientQuotas
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop, run
from tests.simulator.reactor_world import World, answer
from tests.simulator.replicas import ReplicaWorld
from tests.support.hosting import batch, on_loop
from tests.support.wire import CLIENT_ID, request_frame

PLAIN = bytes(batch(b"a"))
REFUSED = bytes(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))


class Frame(bytearray):
    """Can be weakly referenced, and lives as long as a view of it."""


class Refusing:
    """A coordinator that does not know the transaction of any partition."""

    async def verify(
        self, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)


def router_of(world: ReplicaWorld, quotas: ClientQuotas | None) -> Router:
    """Node 1's; its follower does not fetch."""
    node = world.nodes[1]
    services = node.services(AllowAll())
    services.apis, services.decoded = BROKER_APIS, DecodedRequests()
    services.transaction_verification = TransactionVerification(
        Refusing(), node.manager, config=lambda: node.config.transaction, request_timeout_ms=30_000, clock=node.clock
    )
    services.client_quotas = quotas
    return Router(services)


async def check_frame_goes(loop: SimLoop, *batches: bytes, quotas: ClientQuotas | None = None) -> None:
    """Produce a batch to each partition, the first of which waits for the follower; nothing may keep the frame then."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2), isr=(1, 2))
    data = [PartitionProduceData(number, records) for number, records in enumerate(batches)]
    frame = Frame(request_frame(ProduceRequest("t", -1, 3_600_000, [TopicProduceData("orders", b"", data)]), 9))
    left = weakref.ref(frame)
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
    router = router_of(world, quotas)
    handling = router.route(connection, memoryview(frame))
    del frame
    assert handling.send(None) is not None, "it waits for the follower"
    assert connection.is_frame_free
    assert left() is None
    handling.close()
    await world.stop()


@on_loop
async def test_a_batch_whose_transaction_is_refused_does_not_keep_the_frame_while_another_waits(loop: SimLoop) -> None:
    await check_frame_goes(loop, PLAIN, REFUSED)


@on_loop
async def test_quotas_do_not_keep_the_frame(loop: SimLoop) -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set_entity((("client-id", CLIENT_ID),), {"producer_byte_rate": 1e9})
    await check_frame_goes(loop, PLAIN, quotas=quotas)


def test_the_request_log_does_not_keep_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_logger, "is_on", True)
    on_loop(lambda loop: check_frame_goes(loop, PLAIN))()


def test_a_request_that_is_answered_at_once_frees_no_frame_of_another() -> None:
    async def main(loop: SimLoop) -> None:
        async def keep(info: ConnectionInfo, request: bytes) -> Writer:
            for _ in range(2):
                await asyncio.sleep(0.01)
            return answer(b"kept")

        async def quick(info: ConnectionInfo, request: bytes) -> Writer:
            info.is_frame_free = True
            return answer(b"quick")

        world = World(loop, keep=keep, quick=quick)
        client = world.connect()
        await client.send_frame(b"keep" + b" " * 1000)
        await client.send_frame(b"quick")
        await asyncio.sleep(0.015)
        assert world.reactor.request_memory.bytes > 1000
        assert [await client.receive_frame() for _ in range(2)] == [b"kept", b"quick"]
        assert world.reactor.request_memory.bytes == 0

    run(main)
