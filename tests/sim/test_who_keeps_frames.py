"""Who might keep the frame of a request that waits: a refused batch, quotas, the request log."""

from collections.abc import Mapping, Sequence

import pytest

from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer, TransactionVerification
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.security.authorizer import AllowAll
from kafkapy.security.quotas import ClientQuotas
from kafkapy.serving.request_logger import request_logger
from kafkapy.serving.router import Router
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld
from tests.support.frames import check_frame_goes
from tests.support.hosting import batch
from tests.support.wire import CLIENT_ID, request_frame

PLAIN = bytes(batch(b"a"))
REFUSED = bytes(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))


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


async def check_produce(loop: SimLoop, *batches: bytes, quotas: ClientQuotas | None = None) -> None:
    """Produce a batch to each partition, the first of which waits for the follower; nothing may keep the frame then."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2), isr=(1, 2))
    data = [PartitionProduceData(number, records=records) for number, records in enumerate(batches)]
    request = ProduceRequest(
        "t", acks=-1, timeout_ms=3_600_000, topic_data=[TopicProduceData("orders", topic_id=b"", partition_data=data)]
    )
    check_frame_goes(router_of(world, quotas).route, request_frame(request, 9))
    await world.stop()


async def test_a_batch_whose_transaction_is_refused_does_not_keep_the_frame_while_another_waits(loop: SimLoop) -> None:
    await check_produce(loop, PLAIN, REFUSED)


async def test_quotas_do_not_keep_the_frame(loop: SimLoop) -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set_entity((("client-id", CLIENT_ID),), {"producer_byte_rate": 1e9})
    await check_produce(loop, PLAIN, quotas=quotas)


async def test_the_request_log_does_not_keep_the_frame(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_logger, "is_on", True)
    await check_produce(loop, PLAIN)
