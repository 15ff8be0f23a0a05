"""Produce 0-2 to a topic that the client may not write: nothing is converted, and the connection goes on."""

from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.messages.legacy_produce_request import (
    LegacyProduceRequest,
    PartitionProduceData,
    TopicProduceData,
)
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batch import Record
from kafkapy.record.legacy import build_message_set
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.security.authorizer import AclOperation
from kafkapy.serving.router import Router
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld
from tests.support.metadata_services import Deny
from tests.support.wire import request_frame


async def test_what_needs_a_worker_but_is_refused_before_does_not_hold_the_connection(loop: SimLoop) -> None:
    """Otherwise the next long poll of the connection would hold up the requests behind it."""
    world = ReplicaWorld(loop, 1, kafkapy_legacy_clients_enable="true")
    world.create_topic(replicas=(1,), isr=(1,))
    services = world.nodes[1].services(Deny((AclOperation.WRITE, "orders")))
    services.apis, services.decoded = BROKER_APIS, DecodedRequests()
    records = build_message_set([Record(0, 1, None, bytes(5000))], magic=1)
    request = LegacyProduceRequest(
        1,
        timeout_ms=1000,
        topic_data=[TopicProduceData("orders", partition_data=[PartitionProduceData(0, records=bytes(records))])],
    )
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
    assert await Router(services).route(connection, memoryview(request_frame(request, 2))) is not None
    assert not connection.is_held
    await world.stop()
