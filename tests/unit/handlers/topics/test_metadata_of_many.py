"""Metadata of all topics where there are many: in turns, made once for all who ask, as of one image."""

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkapy.handlers.topics import metadata
from kafkapy.handlers.topics.metadata import SMALL_COUNT
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.runtime.turns import STEPS_PER_TURN
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster
from tests.support.metadata_services import context, on_wire, services


def create(cluster: Cluster, name: str, partition_count: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
    cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=[topic])))


def running_in(loop: SimLoop, cluster: Cluster) -> Any:
    running = services(cluster)
    running.io_pool = SimIoPool(loop)
    return running


def send_request(running: Any, version: int = 13) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(metadata.handle(running, requester(version), MetadataRequest(topics=None)))


def requester(version: int = 13) -> Any:
    found = context(version)
    found.client = None
    found.connection = SimpleNamespace(is_held=False)
    return found


def counts(response: Any, version: int = 13) -> dict[str, int]:
    return {topic.name: len(topic.partitions) for topic in on_wire(response, version).topics}


async def test_all_topics_are_described_in_turns_and_once_for_all_requests(loop: SimLoop) -> None:
    cluster = Cluster(1)
    create(cluster, "large", 3 * STEPS_PER_TURN)
    create(cluster, "small", 1)
    running = running_in(loop, cluster)
    first, second = send_request(running), send_request(running)
    await asyncio.sleep(0)
    assert not first.done()
    started = loop.time()
    assert await first is await second
    assert loop.time() > started, "it has given way"
    assert counts(first.result()) == {"large": 3 * STEPS_PER_TURN, "small": 1}
    assert await send_request(running) is first.result()


async def test_a_large_topic_that_is_named_is_described_in_turns(loop: SimLoop) -> None:
    cluster = Cluster(1)
    create(cluster, "large", 3 * STEPS_PER_TURN)
    create(cluster, "small", 2)
    named = MetadataRequest([MetadataRequestTopic(name=name) for name in ("small", "large", "missing")])
    asking = requester()
    answering = asyncio.ensure_future(metadata.handle(running_in(loop, cluster), asking, named))
    await asyncio.sleep(0)
    assert not answering.done()
    create(cluster, "missing", 1)
    started = loop.time()
    assert counts(await answering) == {"small": 2, "large": 3 * STEPS_PER_TURN, "missing": 0}
    assert loop.time() > started, "it has given way"
    assert asking.is_long, "a worker encodes it"


async def test_a_response_is_of_the_image_that_was_requested_and_not_kept_for_a_newer_one(loop: SimLoop) -> None:
    cluster = Cluster(1)
    create(cluster, "large", 3 * STEPS_PER_TURN)
    running = running_in(loop, cluster)
    before = send_request(running)
    await asyncio.sleep(0)
    create(cluster, "new", 1)
    after = send_request(running)
    assert counts(await before) == {"large": 3 * STEPS_PER_TURN}
    assert counts(await after) == {"large": 3 * STEPS_PER_TURN, "new": 1}
    assert await send_request(running) is after.result()


async def test_who_goes_away_while_the_response_is_made_leaves_others_theirs(loop: SimLoop) -> None:
    cluster = Cluster(1)
    create(cluster, "large", SMALL_COUNT + STEPS_PER_TURN)
    running = running_in(loop, cluster)
    first, second = send_request(running), send_request(running)
    await asyncio.sleep(0)
    first.cancel()
    assert counts(await second) == {"large": SMALL_COUNT + STEPS_PER_TURN}


async def test_responses_are_made_one_at_a_time_and_clients_take_turns(loop: SimLoop) -> None:
    cluster = Cluster(1)
    create(cluster, "large", 3 * STEPS_PER_TURN)
    running = running_in(loop, cluster)
    connections: list[SimpleNamespace] = []

    async def ask(client: str) -> int:
        """Return how many responses have been begun when this one is finished, with at most the next one."""
        requester = context(13)
        requester.client, requester.connection = client, SimpleNamespace(is_held=False)
        connections.append(requester.connection)
        request = MetadataRequest(topics=None, include_topic_authorized_operations=True)  # of this client's rights
        await metadata.handle(running, requester, request)
        return sum(connection.is_held for connection in connections)

    asking = [asyncio.ensure_future(ask(client)) for client in (*["many"] * 20, "another")]
    *of_many, of_another = await asyncio.gather(*asking)
    assert of_another <= 3
    assert all(begun - finished <= 1 for finished, begun in enumerate(sorted([*of_many, of_another]), 1))
