"""What ACLs and quotas cost small requests, in instructions; how much of all topics is looked at in one turn."""

import sys
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, Final

import pytest

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.topics import metadata
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.authorizer import AclOperation
from tests.simulator.broker_world import FETCH_VERSION, PRODUCE_VERSION, KafkaClient, Machine, Topic
from tests.simulator.hot_paths import COUNTED_ON, Counter
from tests.simulator.loop import SimLoop, run
from tests.support.controllers import Cluster
from tests.support.metadata_services import on_wire, services
from tests.support.wire import CLIENT_ID, request_frame

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_COUNT, PER_REQUEST = 1000, 250
REPEATS = 8
AT_MOST: Final = 1 / 0.9
"""What small requests may cost with 1,000 ACLs, beside none: nine tenths of the throughput."""
TOPIC, LITERAL, PREFIXED, ALLOW = 2, 3, 4, 3
READ, WRITE = int(AclOperation.READ), int(AclOperation.WRITE)

counted = pytest.mark.skipif(sys.version_info[:2] != COUNTED_ON, reason="bytecode is counted on CPython 3.11")
Setup = Callable[[KafkaClient], Any]


# -- requests ---------------------------------------------------------------------------------------------------------


async def nothing(_client: KafkaClient) -> None: ...


async def acls(client: KafkaClient) -> None:
    """1,000 ACLs, of users, hosts and prefixes; two of them say what the client may do."""
    mine = [("hot", LITERAL, "User:ANONYMOUS", operation) for operation in (READ, WRITE)]
    others = [
        (f"team-{number % 40}-{number}", PREFIXED if number % 3 else LITERAL, f"User:u{number % 100}", 3 + number % 2)
        for number in range(ACL_COUNT - len(mine))
    ]
    creations = [
        AclCreation(
            TOPIC,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=who,
            host="*",
            operation=op,
            permission_type=ALLOW,
        )
        for name, pattern, who, op in [*others, *mine]
    ]
    for first in range(0, ACL_COUNT, PER_REQUEST):
        response = await client.call(CreateAclsRequest(creations[first : first + PER_REQUEST]), 3)
        assert {result.error_code for result in response.results} == {0}


def quotas(client_id: str) -> Setup:
    async def set_quotas(client: KafkaClient) -> None:
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        entry = EntryData(
            [EntityData("client-id", entity_name=client_id)], ops=[OpData(key, value=1e9) for key in keys]
        )
        assert [each.error_code for each in (await client.call(AlterClientQuotasRequest([entry]), 1)).entries] == [0]

    return set_quotas


@lru_cache
def count(setup: Setup, *, is_secured: bool = False) -> dict[str, float]:
    """Return the instructions of small requests by what they are; five small produces are sent together."""
    secured = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"} if is_secured else {}

    async def main(loop: SimLoop) -> dict[str, float]:
        machine = Machine(loop, offsets_topic_num_partitions="1", **secured)
        await machine.boot()
        client = machine.connect()
        topic = await client.create_topic("hot", 2)
        await setup(client)
        batch = client.batch([b"%0100d" % 1])
        found = {
            "produce": await count_of(client, [produce(topic, batch)]),
            "five produces": await count_of(client, [produce(topic, batch)] * 5),
            "fetch": await count_of(client, [fetch(topic)]),
        }
        await machine.stop()
        return found

    return run(main)


async def count_of(client: KafkaClient, frames: list[bytes]) -> float:
    counter = Counter()
    for _ in range(REPEATS):
        await serve(client, frames)
    with counter:
        for _ in range(REPEATS):
            await serve(client, frames)
    return counter.instructions / REPEATS


async def serve(client: KafkaClient, frames: list[bytes]) -> None:
    await client.link.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    for _ in frames:
        assert await client.link.receive_frame()


def produce(topic: Topic, batch: bytes) -> bytes:
    data = TopicProduceData(
        topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(0, records=batch)]
    )
    return request_frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)


def fetch(topic: Topic) -> bytes:
    topics = [
        FetchTopic(
            topic.name,
            topic_id=topic.topic_id,
            partitions=[FetchPartition(1, fetch_offset=0, partition_max_bytes=1000)],
        )
    ]
    return request_frame(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics), FETCH_VERSION)


@counted
@pytest.mark.parametrize("kind", ["produce", "five produces", "fetch"])
def test_small_requests_under_a_thousand_acls_cost_a_tenth_more_at_most(kind) -> None:
    plain, secured = count(nothing)[kind], count(acls, is_secured=True)[kind]
    assert secured <= AT_MOST * plain, f"{plain:.0f} instructions without an authorizer, {secured:.0f} with ACLs"


@counted
@pytest.mark.parametrize("kind", ["produce", "five produces", "fetch"])
def test_quotas_of_others_cost_next_to_nothing(kind) -> None:
    plain, others = count(nothing)[kind], count(quotas("somebody-else"))[kind]
    assert others <= 1.03 * plain, f"{plain:.0f} instructions without quotas, {others:.0f} with those of others"


@counted
def test_only_the_producers_with_a_quota_go_the_slow_way() -> None:
    plain, own = (count(setup)["five produces"] for setup in (nothing, quotas(CLIENT_ID)))
    assert own > 1.5 * plain


# -- all topics -------------------------------------------------------------------------------------------------------


TOPICS = 10_000


class HalfHidden:
    """An Authorizer that hides every other topic, and counts what it is asked."""

    allows_everything = False
    logs_what_it_allows = False

    def __init__(self) -> None:
        self.question_count = 0

    def authorize(self, _requester: Any, _operation: Any, _kind: Any, name: str, **_options: Any) -> bool:
        self.question_count += 1
        return name.endswith(("0", "2", "4", "6", "8"))


class Turns:
    """Awaits a coroutine; keeps how many questions each of its steps asked."""

    def __init__(self, coroutine: Any, authorizer: HalfHidden) -> None:
        self._coroutine = coroutine
        self._authorizer = authorizer
        self.questions: list[int] = []

    def __await__(self) -> Generator[Any, None, Any]:
        while True:
            before = self._authorizer.question_count
            try:
                awaited = self._coroutine.send(None)
            except StopIteration as stop:
                return stop.value
            finally:
                self.questions.append(self._authorizer.question_count - before)
            yield awaited


def test_all_topics_half_of_them_hidden_are_looked_at_in_turns() -> None:
    """A turn ends after 4 ms; here, where the clock stands still, after STEPS_PER_TURN steps."""
    cluster, authorizer = Cluster(1), HalfHidden()
    for first in range(0, TOPICS, 1000):
        topics = [
            CreatableTopic(f"t{number}", num_partitions=1, replication_factor=1)
            for number in range(first, first + 1000)
        ]
        cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=topics)))
    running = services(cluster, authorizer=authorizer)
    info = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "10.0.0.1", 1)
    context = RequestContext(RequestHeader(3, 13, 1, "c"), info)

    async def main(_loop: SimLoop) -> tuple[Any, list[int]]:
        turns = Turns(metadata.handle(running, context, MetadataRequest(topics=None)), authorizer)
        return await turns, turns.questions

    response, questions = run(main)
    assert len(on_wire(response, 13).topics) == TOPICS / 2
    assert sum(questions) == TOPICS
    assert max(questions) <= STEPS_PER_TURN
    assert context.is_long
