"""Metadata encoded in pieces has the bytes of the response encoded at once; which responses are cached, for whom."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.encoded_responses import MAX_BYTES, EncodedResponse, EncodedResponses
from kafkapy.handlers.topics import metadata
from kafkapy.handlers.topics.topic_pieces import PIECE_TOPICS, TopicPieces
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkapy.protocol.primitives import SPLICE_BYTES, Writer
from kafkapy.security.authorizer import AclOperation
from tests.support.controllers import Cluster
from tests.support.metadata_services import Deny, context, on_wire, response_of, services


def topics(count: int) -> list[MetadataResponseTopic]:
    partitions = [
        MetadataResponsePartition(
            0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        ),
        MetadataResponsePartition(5, partition_index=1, leader_id=2, leader_epoch=0, replica_nodes=[2], isr_nodes=[]),
    ]
    return [MetadataResponseTopic(0, name=f"topic-{number}", partitions=partitions) for number in range(count)]


def head() -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(1, host="localhost", port=9092)], cluster_id="of ours")


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 301])
def test_pieces_are_the_bytes_of_the_whole(version: int, count: int) -> None:
    made, whole = topics(count), head()
    if 8 <= version <= 10:
        whole.cluster_authorized_operations = 77
    if version < 2:
        whole.cluster_id = None
    pieces = TopicPieces(whole, version)
    for first in range(0, count, PIECE_TOPICS):
        pieces.add(made[first : first + PIECE_TOPICS])
    joined = pieces.joined()
    whole.topics = made
    assert joined == whole.encode(version)


class OfPrincipals(Deny):
    """Allows each principal what is in `allowed`; counts what it is asked."""

    logs_what_it_allows = False

    def __init__(self, allowed: Mapping[str, str]) -> None:
        super().__init__()
        self.allowed = allowed
        self.requested = 0

    def authorize(self, requester: Any, _operation: AclOperation, _kind: Any, name: str, **_options: Any) -> bool:
        self.requested += 1
        return name == self.allowed.get(requester.principal)


def cluster_with(*names: str) -> Cluster:
    cluster = Cluster(1)
    create(cluster, *names)
    return cluster


def create(cluster: Cluster, *names: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name, num_partitions=1, replication_factor=1) for name in names]
    )
    cluster.commit(cluster.controller.topics.decide_create(request))


def names_for(running: Any, principal: str) -> list[str]:
    requester = context(13)
    requester.principal = principal
    response = on_wire(response_of(metadata.handle(running, requester, MetadataRequest(topics=None))), 13)
    return [topic.name for topic in response.topics]


def test_a_response_is_cached_by_principal_until_the_topics_change() -> None:
    cluster, authorizer = cluster_with("a", "b"), OfPrincipals({"User:ann": "a", "User:bob": "b"})
    running = services(cluster, authorizer=authorizer)
    for _ in range(2):
        assert names_for(running, "User:ann") == ["a"]
        assert names_for(running, "User:bob") == ["b"]
    assert authorizer.requested == 4, "the second time nothing is asked"
    authorizer.allowed = {"User:ann": "c"}
    create(cluster, "c")
    assert names_for(running, "User:ann") == ["c"]


def test_a_response_is_for_one_host_and_one_listener() -> None:
    """ACLs may name hosts; each listener has addresses of its own."""
    authorizer = OfPrincipals({"User:ann": "a"})
    running = services(cluster_with("a"), authorizer=authorizer)
    requested = []
    for host, listener in (("10.0.0.1", "PLAINTEXT"), ("10.0.0.2", "PLAINTEXT"), ("10.0.0.2", "OTHER")):
        for _ in range(2):
            requester = context(13, listener)
            requester.principal, requester.client_host = "User:ann", host
            response_of(metadata.handle(running, requester, MetadataRequest(topics=None)))
        requested.append(authorizer.requested)
    assert requested == [1, 2, 3]


def test_a_change_of_acls_drops_what_is_cached() -> None:
    cluster, authorizer = cluster_with("a", "b"), OfPrincipals({"User:ann": "a"})
    running = services(cluster, authorizer=authorizer)
    assert names_for(running, "User:ann") == ["a"]
    authorizer.allowed = {}
    image = running.metadata.image
    running.metadata = SimpleNamespace(
        image=SimpleNamespace(topics=image.topics, cluster=image.cluster, acls=dict(image.acls))
    )
    assert names_for(running, "User:ann") == []


def test_with_an_audit_log_of_what_is_allowed_every_request_is_authorized() -> None:
    authorizer = OfPrincipals({"User:ann": "a"})
    authorizer.logs_what_it_allows = True
    running = services(cluster_with("a", "b"), authorizer=authorizer)
    for _ in range(2):
        assert names_for(running, "User:ann") == ["a"]
    assert authorizer.requested == 4


def test_the_cache_is_bounded_in_bytes() -> None:
    image, responses = cluster_with("a").image, EncodedResponses()
    responses.find(image, 13, "none")
    for number in range(5):
        responses.keep(image, 13, number, bytes(MAX_BYTES // 3))
    assert [number for number in range(5) if responses.find(image, 13, number)] == [2, 3, 4]
    responses.keep(image, 13, "large", bytes(MAX_BYTES + 1))
    assert responses.find(image, 13, "large") is not None
    assert responses.find(image, 13, 4) is None


def test_all_who_get_a_large_cached_response_share_its_bytes() -> None:
    body = bytes(SPLICE_BYTES)
    cached = EncodedResponse(body)
    for _ in range(2):
        out = Writer()
        cached.write(out, 12)
        assert [payload for _, payload in out.splices] == [body]
        assert out.splices[0][1] is body
        assert (len(out), out.wire_length) == (0, SPLICE_BYTES)
