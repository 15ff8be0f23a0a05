"""Raft's messages on Kafka's wire: what goes out comes back the same at each version, but for what it cannot carry."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.raft import messages
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.raft.wire import (
    API_KEYS,
    PeerError,
    WirePeer,
    lowest_version,
    message_to_request,
    message_to_response,
    refusal,
    request_to_message,
    response_to_message,
)
from kafkapy.record.batch import MAGIC_POSITION
from kafkapy.record.errors import RecordsError
from kafkapy.types import ZERO_UUID, OffsetAndEpoch, ReplicaKey
from tests.support.batches import build_batch

PEER = WirePeer("cluster", "CONTROLLER")
HERE = (Endpoint("CONTROLLER", "localhost", 9093),)
INT64_MAX = (1 << 63) - 1

node_ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**62)
uuids = st.binary(min_size=16, max_size=16)
keys = st.builds(ReplicaKey, node_ids, uuids)
known_keys = st.builds(ReplicaKey, node_ids, uuids.filter(any))
"""Of voters to add, remove or update, whose directories are known."""
endpoints = st.builds(lambda port: (Endpoint("CONTROLLER", "localhost", port),), st.integers(0, 65535))
snapshot_ids = st.builds(OffsetAndEpoch, offsets, epochs)

REQUESTS = st.one_of(
    st.builds(
        messages.VoteRequest,
        candidate=keys,
        leader_epoch=epochs,
        end=snapshot_ids,
        is_pre_vote=st.booleans(),
        voter=st.none() | keys,
    ),
    st.builds(
        messages.BeginEpochRequest, leader_id=node_ids, leader_epoch=epochs, leader_endpoints=endpoints, voter=keys
    ),
    st.builds(
        messages.EndEpochRequest,
        leader_id=node_ids,
        leader_epoch=epochs,
        preferred_successors=st.lists(keys, max_size=3).map(tuple),
        leader_endpoints=endpoints,
    ),
    st.builds(
        messages.FetchRequest,
        replica=keys,
        leader_epoch=st.just(2**31 - 1),
        fetch_offset=offsets,
        last_fetched_epoch=epochs,
        high_watermark=st.integers(-1, 2**62),
        max_wait_ms=st.integers(0, 500),
        max_bytes=st.integers(1, 2**31 - 1),
    ),
    st.builds(
        messages.FetchSnapshotRequest,
        replica=keys,
        leader_epoch=epochs,
        snapshot_id=snapshot_ids,
        position=offsets,
        max_bytes=st.integers(1, 2**31 - 1),
    ),
    st.builds(
        messages.AddVoterRequest,
        voter=st.builds(Voter, known_keys, endpoints),
        timeout_ms=st.integers(0, 2**31 - 1),
        acknowledges_when_committed=st.booleans(),
    ),
    st.builds(messages.UpdateVoterRequest, voter=st.builds(Voter, known_keys, endpoints), leader_epoch=epochs),
)


def carried(request: Any, version: int) -> Any:
    """Return what a request still says at a version that cannot carry all of it."""
    match request:
        case messages.VoteRequest() if version < 1:
            return replace(request, candidate=ReplicaKey(request.candidate.node_id, ZERO_UUID), voter=None)
        case messages.BeginEpochRequest() if version < 1:
            return replace(request, leader_endpoints=(), voter=None)
        case messages.EndEpochRequest() if version < 1:
            successors = tuple(ReplicaKey(key.node_id, ZERO_UUID) for key in request.preferred_successors)
            return replace(request, leader_endpoints=(), preferred_successors=successors)
        case messages.FetchRequest():
            if version < 17:
                request = replace(request, replica=ReplicaKey(request.replica.node_id, ZERO_UUID))
            return replace(request, high_watermark=INT64_MAX) if version < 18 else request
        case messages.FetchSnapshotRequest() if version < 1:
            return replace(request, replica=ReplicaKey(request.replica.node_id, ZERO_UUID))
    return request


@given(REQUESTS)
def test_requests_arrive_as_they_were_sent_at_each_version(request: Any) -> None:
    api = APIS[API_KEYS[type(request)]]
    for version in range(lowest_version(request), api.max_stable_version + 1):
        encoded = request_to_message(request, version, PEER).encode(version)
        message = request_type(api.key).decode(encoded, version)
        assert message_to_request(message, version, PEER) == carried(request, version)


RESPONSES = [
    (
        messages.VoteRequest(
            candidate=ReplicaKey(1, ZERO_UUID), leader_epoch=3, end=OffsetAndEpoch(1, 1), is_pre_vote=False
        ),
        messages.VoteResponse(leader_epoch=3, leader_id=2, leader_endpoints=HERE, is_granted=True),
        1,
    ),
    (
        messages.BeginEpochRequest(leader_id=2, leader_epoch=3),
        messages.BeginEpochResponse(leader_epoch=3, leader_id=2, leader_endpoints=HERE, error=74),
        1,
    ),
    (
        messages.EndEpochRequest(leader_id=2, leader_epoch=3, preferred_successors=()),
        messages.EndEpochResponse(leader_epoch=3, leader_id=2, leader_endpoints=HERE),
        1,
    ),
    (
        messages.FetchRequest(
            replica=ReplicaKey(1, ZERO_UUID),
            leader_epoch=3,
            fetch_offset=7,
            last_fetched_epoch=2,
            high_watermark=3,
            max_wait_ms=5,
            max_bytes=9,
        ),
        messages.FetchResponse(
            leader_epoch=3,
            leader_id=2,
            leader_endpoints=HERE,
            high_watermark=9,
            log_start_offset=1,
            diverging=OffsetAndEpoch(4, 1),
            snapshot_id=None,
        ),
        17,
    ),
    (
        messages.FetchSnapshotRequest(
            replica=ReplicaKey(1, ZERO_UUID), leader_epoch=3, snapshot_id=OffsetAndEpoch(8, 2), position=4, max_bytes=9
        ),
        messages.FetchSnapshotResponse(
            leader_epoch=3,
            leader_id=2,
            leader_endpoints=HERE,
            snapshot_id=OffsetAndEpoch(8, 2),
            size_bytes=100,
            position=4,
            data=b"snap",
        ),
        1,
    ),
    (
        messages.UpdateVoterRequest(voter=Voter(ReplicaKey(1, ZERO_UUID), HERE), leader_epoch=3),
        messages.VoterChangeResponse(leader_epoch=3, leader_id=2, leader_endpoints=HERE, error=127),
        0,
    ),
]


@pytest.mark.parametrize(("request_", "response", "endpoints_since"), RESPONSES)
def test_responses_arrive_as_they_were_sent_at_each_version(
    request_: Any, response: messages.Response, endpoints_since: int
) -> None:
    api = APIS[API_KEYS[type(request_)]]
    for version in range(lowest_version(request_), api.max_stable_version + 1):
        requested = request_to_message(request_, version, PEER)
        message = response_type(api.key).decode(
            response_to_message(response, requested, version, PEER).encode(version), version
        )
        expected = response if version >= endpoints_since else replace(response, leader_endpoints=())
        assert message_to_response(message, request_, version, PEER) == expected


@pytest.mark.parametrize("response", [response for _, response, _ in RESPONSES[:5]])
def test_the_leader_is_returned_without_an_address_where_it_listens_by_another_name(
    response: messages.Response,
) -> None:
    other = WirePeer("cluster", "OTHER")
    index = next(index for index, (_, each, _) in enumerate(RESPONSES) if each is response)
    request_ = RESPONSES[index][0]
    version = APIS[API_KEYS[type(request_)]].max_stable_version
    message = response_to_message(response, request_to_message(request_, version, other), version, other)
    assert message_to_response(message, request_, version, other).leader_endpoints == ()


@pytest.mark.parametrize("request_", [each for each, _, _ in RESPONSES])
def test_another_clusters_request_is_refused_as_a_whole(request_: Any) -> None:
    version = APIS[API_KEYS[type(request_)]].max_stable_version
    message = request_to_message(request_, version, WirePeer("another", "CONTROLLER"))
    with pytest.raises(PeerError) as refused:
        message_to_request(message, version, PEER)
    assert refused.value.code == 104
    response: Any = refusal(refused.value, message)
    assert response.error_code == 104
    assert response.encode(version)


@pytest.mark.parametrize("request_", [each for each, _, _ in RESPONSES[:4]])
def test_a_request_about_another_topic_is_refused_as_a_whole(request_: Any) -> None:
    message: Any = request_to_message(request_, 12 if isinstance(request_, messages.FetchRequest) else 0, PEER)
    topic = message.topics[0]
    if hasattr(topic, "topic_name"):
        topic.topic_name = "orders"
    else:
        topic.topic = "orders"
    with pytest.raises(PeerError) as refused:
        message_to_request(message, 12 if isinstance(request_, messages.FetchRequest) else 0, PEER)
    assert refused.value.code == 42


@pytest.mark.parametrize(
    ("request_type", "name", "fields"),
    [
        (messages.AddVoterRequest, "Add", {"timeout_ms": 1}),
        (messages.UpdateVoterRequest, "Update", {"leader_epoch": 3}),
    ],
)
def test_a_voter_needs_an_address_for_controllers(request_type: Any, name: str, fields: Any) -> None:
    voter = Voter(ReplicaKey(1, b"d" * 16), (Endpoint("PLAINTEXT", "localhost", 9092),))
    message = request_to_message(request_type(voter=voter, **fields), 0, PEER)
    requested: Any = message_to_request(message, 0, PEER)
    assert requested.voter == voter
    assert requested.problem.startswith(f"{name} voter request didn't include the endpoint")


@pytest.mark.parametrize(
    "request_",
    [
        messages.AddVoterRequest(voter=Voter(ReplicaKey(1, ZERO_UUID), HERE), timeout_ms=1),
        messages.RemoveVoterRequest(voter=ReplicaKey(1, ZERO_UUID)),
        messages.UpdateVoterRequest(voter=Voter(ReplicaKey(1, ZERO_UUID), HERE), leader_epoch=3),
    ],
)
def test_a_voter_without_a_directory_is_for_the_leader_to_refuse(request_: Any) -> None:
    requested: Any = message_to_request(request_to_message(request_, 0, PEER), 0, PEER)
    assert requested.voter == request_.voter
    assert requested.problem.endswith("voter request didn't include a valid voter")


def test_a_snapshot_is_not_asked_for_in_parts_of_a_negative_size() -> None:
    """To read so would be an error of the disk, which ends a controller."""
    message: Any = request_to_message(RESPONSES[4][0], 1, PEER)
    message.max_bytes = -1
    with pytest.raises(PeerError) as refused:
        message_to_request(message, 1, PEER)
    assert refused.value.code == 42


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_records_of_a_leader_are_no_response(position: int, change: int) -> None:
    """A node that took them would stop, and so would each other one that fetches them: the damage is on one disk."""
    data = bytearray(build_batch([(5, None, b"value %d" % number, ()) for number in range(3)], leader_epoch=2))
    position = MAGIC_POSITION + position % (len(data) - MAGIC_POSITION)
    data[position] ^= change
    topic = FetchableTopicResponse(topic_id=bytes(15) + b"\1", partitions=[PartitionData(0, records=bytes(data))])
    with pytest.raises(RecordsError):
        message_to_response(FetchResponse(responses=[topic]), RESPONSES[3][0], 17, PEER)


def test_records_before_damaged_ones_are_taken() -> None:
    data = [build_batch([(5, None, b"value", ())], base_offset=offset, leader_epoch=2) for offset in (7, 8)]
    damaged = data[1][:-1] + b"x"
    topic = FetchableTopicResponse(topic_id=bytes(15) + b"\1", partitions=[PartitionData(0, records=data[0] + damaged)])
    response = message_to_response(FetchResponse(responses=[topic]), RESPONSES[3][0], 17, PEER)
    assert isinstance(response, messages.FetchResponse)
    assert [(batch.base_offset, bytes(batch.data)) for batch in response.batches] == [(7, data[0])]
