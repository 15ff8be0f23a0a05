"""Topics that are created because a client asked for them, by a controller on another node."""

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.forwarding import principal_data
from kafkapy.handlers.topics.auto_create import creatable_topic, create_topics_soon
from kafkapy.handlers.topics_in_creation import TopicsInCreation
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.messages.create_topics_request import CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.primitives import Writer
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster
from tests.support.metadata_services import services

METADATA, CREATE_TOPICS, VERSION = 3, 19, 7
CONNECTION: Any = SimpleNamespace(principal="User:alice", peer_host="10.0.0.7", is_by_token=False)
CONTEXT = RequestContext(RequestHeader(METADATA, 12, 5, "app"), CONNECTION)


class Elsewhere:
    """The active controller on another node: answers once it is told to."""

    is_local = False

    def __init__(self) -> None:
        self.envelopes: list[EnvelopeRequest] = []
        self.may_respond = asyncio.Event()
        self.error = ErrorCode.NONE

    async def call(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        self.envelopes.append(envelope)
        await self.may_respond.wait()
        out = Writer()
        write_response_header(out, CREATE_TOPICS, VERSION, 5)
        out += CreateTopicsResponse(topics=[CreatableTopicResult("orders")]).encode(VERSION)
        return EnvelopeResponse(error_code=self.error, response_data=bytes(out))

    def requested(self) -> list[list[str]]:
        """Return the names of the topics of each request."""
        found = []
        for envelope in self.envelopes:
            _, position = read_request_header(memoryview(envelope.request_data))
            request = CreateTopicsRequest.decode(bytes(envelope.request_data)[position:], VERSION)
            found.append([topic.name for topic in request.topics])
        return found


def elsewhere(**properties: str) -> tuple[Any, Elsewhere]:
    """Return the services of a broker that is not the active controller, and that controller."""
    found = services(Cluster(), **properties)
    found.active_controller = controller = Elsewhere()
    found.topics_in_creation = TopicsInCreation()
    return found, controller


async def test_the_controller_is_requested_with_the_clients_principal(loop: SimLoop) -> None:
    running, controller = elsewhere()
    create_topics_soon(running, CONTEXT, ["orders"])
    await asyncio.sleep(0)
    (envelope,) = controller.envelopes
    header, _ = read_request_header(memoryview(envelope.request_data))
    assert (header.api_key, header.api_version, header.client_id) == (CREATE_TOPICS, VERSION, "app")
    assert principal_data(envelope.request_principal or b"").name == "alice"
    assert envelope.client_host_address == bytes([10, 0, 0, 7])
    controller.may_respond.set()
    await asyncio.sleep(0.1)


async def test_a_topic_that_is_being_created_is_not_requested_again_until_the_controller_has_answered(
    loop: SimLoop,
) -> None:
    running, controller = elsewhere()
    create_topics_soon(running, CONTEXT, ["orders"])
    create_topics_soon(running, CONTEXT, ["orders", "trades"])
    create_topics_soon(running, CONTEXT, ["orders"])
    await asyncio.sleep(0)
    assert controller.requested() == [["orders"], ["trades"]]
    controller.error = ErrorCode.NOT_CONTROLLER
    controller.may_respond.set()
    await asyncio.sleep(0.1)
    create_topics_soon(running, CONTEXT, ["orders"])
    await asyncio.sleep(0.1)
    assert controller.requested() == [["orders"], ["trades"], ["orders"]]


def test_what_this_broker_has_set_counts_and_what_it_has_not_is_the_controllers() -> None:
    topics = [
        creatable_topic(elsewhere(num_partitions="7", default_replication_factor="2")[0], "t"),
        creatable_topic(elsewhere()[0], "t"),
    ]
    assert [(topic.num_partitions, topic.replication_factor) for topic in topics] == [(7, 2), (-1, -1)]
