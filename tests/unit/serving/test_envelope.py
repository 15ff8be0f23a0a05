"""Envelope on the controllers' listener: who may send one, in whose name what is inside is asked, what it may be."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.forwarding import encode_principal, principal_data
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, ROWS, Forwarding
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkapy.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.runtime.turns import Turns
from kafkapy.security.authorizer import AclOperation
from kafkapy.serving import envelope
from tests.simulator.loop import SimLoop, run
from tests.support.bearer_tokens import ImmediatePool

BROKER, ALICE = "User:broker", encode_principal("User", "alice")
HOST = bytes([10, 0, 0, 7])


class Rights:
    """An authorizer: brokers may act for the cluster, alice may do all else, from her own address alone."""

    allows_everything = False

    def __init__(self) -> None:
        self.requested: list[tuple[str, str, str]] = []
        self.timeouts_ms: list[int] = []
        """Of the changes that the controller was asked for."""

    def authorize(self, requester: Any, operation: AclOperation, *_: Any, **__: Any) -> bool:
        self.requested.append((requester.principal, requester.client_host, operation.name))
        if operation == AclOperation.CLUSTER_ACTION:
            return bool(requester.principal == BROKER)
        return (requester.principal, requester.client_host) == ("User:alice", "10.0.0.7")


def frame(request: Any, version: int) -> bytes:
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=7, client_id="c")
    request.write(out, version)
    return bytes(out)


INSIDE = frame(UnregisterBrokerRequest(broker_id=3), 0)
NOT_FORWARDED_IN_NO_VERSION = bytes.fromhex("0003 0063 00000007 ffff 00")
"""Metadata of version 99."""


def sent(
    data: bytes = INSIDE,
    *,
    principal: bytes | None = ALICE,
    host: bytes = HOST,
    by: str = BROKER,
    is_active: bool = True,
    error: ApiError | None = None,
) -> tuple[EnvelopeResponse, Rights]:
    rights = Rights()

    async def change(*_: Any, timeout_ms: int) -> None:
        rights.timeouts_ms.append(timeout_ms)
        if error is not None:
            raise error

    services: Any = SimpleNamespace(
        apis=CONTROLLER_APIS,
        authorizer=rights,
        controller=SimpleNamespace(is_active=is_active),
        client_quotas=None,
        config=SimpleNamespace(node=SimpleNamespace(delete_topic_enable=True)),
        metadata_changes=SimpleNamespace(change=change),
        io_pool=ImmediatePool(),
        turns=Turns(),
    )
    context: Any = SimpleNamespace(
        principal=by,
        client_host="10.0.0.1",
        connection_id="1",
        listener_name="CONTROLLER",
        security_protocol="PLAINTEXT",
        api_key=58,
    )
    requested = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=host)

    async def main(loop: SimLoop) -> EnvelopeResponse:
        return await envelope.handle(services, context, requested)

    return run(main), rights


@pytest.mark.parametrize(
    "requested",
    [
        CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1)], timeout_ms=1234),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1234),
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="orders", count=2, assignments=None)], timeout_ms=1234
        ),
        AlterPartitionReassignmentsRequest(timeout_ms=1234),
        ElectLeadersRequest(topic_partitions=[TopicPartitions("orders", partitions=[0])], timeout_ms=1234),
    ],
    ids=lambda requested: type(requested).__name__,
)
def test_the_clients_time_out_bounds_the_change_at_the_controller(requested: Any) -> None:
    data = frame(requested, CONTROLLER_APIS[requested.API_KEY].max_version)
    _, rights = sent(data, error=ApiError(ErrorCode.REQUEST_TIMED_OUT))
    assert rights.timeouts_ms == [1234]


@pytest.mark.parametrize("by", ["User:alice", "User:ANONYMOUS"])
def test_who_is_no_broker_acts_in_nobodys_name(by: str) -> None:
    response, rights = sent(by=by)
    assert (response.error_code, response.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    assert rights.requested == [(by, "10.0.0.1", "CLUSTER_ACTION")]


@pytest.mark.parametrize(
    ("principal", "host", "code"),
    [
        (ALICE, HOST, 0),
        (ALICE, bytes([10, 0, 0, 8]), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (encode_principal("User", "mallory"), HOST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (encode_principal(*BROKER.split(":")), HOST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
    ids=["alice", "from elsewhere", "mallory", "the broker"],
)
def test_the_inner_request_is_authorized_by_the_clients_principal_and_address(
    principal: bytes, host: bytes, code: int
) -> None:
    response, rights = sent(principal=principal, host=host)
    assert response.error_code == 0
    inner = UnregisterBrokerResponse.decode(bytes(response.response_data or b"")[5:], 0)
    assert inner.error_code == code
    client = principal_data(principal)
    requested = (f"{client.type}:{client.name}", ".".join(map(str, host)), "ALTER")
    assert rights.requested == [(BROKER, "10.0.0.1", "CLUSTER_ACTION"), requested]


def test_a_client_that_logged_in_by_a_token_makes_none_through_a_broker() -> None:
    principal = encode_principal("User", "alice", is_by_token=True)
    response, _ = sent(frame(CreateDelegationTokenRequest(), 3), principal=principal)
    inner = CreateDelegationTokenResponse.decode(bytes(response.response_data or b"")[5:], 3)
    assert inner.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


NOT_PASSED_ON = {row.api_key for row in ROWS if row.forwarding is Forwarding.NONE}


@pytest.mark.parametrize("key", sorted(NOT_PASSED_ON))
def test_what_is_not_passed_on_is_not_taken(key: int) -> None:
    version = (CONTROLLER_APIS.get(key) or BROKER_APIS[key]).max_version
    out = Writer()
    write_request_header(out, api_key=key, api_version=version, correlation_id=7, client_id="c")
    response, rights = sent(bytes(out))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert len(rights.requested) == 1


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"principal": b"\0\1" + ALICE[2:]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"principal": ALICE[:-2]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"host": b""}, ErrorCode.INVALID_REQUEST),
        ({"host": bytes(5)}, ErrorCode.INVALID_REQUEST),
        ({"data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"data": INSIDE[:-1]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"data": INSIDE[:3] + b"\x63" + INSIDE[4:]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"is_active": False}, ErrorCode.NOT_CONTROLLER),
        ({"error": ApiError(ErrorCode.NOT_CONTROLLER)}, ErrorCode.NOT_CONTROLLER),
    ],
)
def test_an_envelope_that_is_not_right_is_refused(how: dict[str, Any], code: ErrorCode) -> None:
    response, _ = sent(**how)
    assert (response.error_code, response.response_data) == (code, None)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"by": "User:alice", "principal": b"", "host": b"", "data": b""}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"principal": b"", "host": b"", "data": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"host": b"", "data": b""}, ErrorCode.INVALID_REQUEST),
        ({"data": NOT_FORWARDED_IN_NO_VERSION}, ErrorCode.INVALID_REQUEST),
        ({"data": INSIDE[:3] + b"\x63" + INSIDE[4:], "is_active": False}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_of_several_faults_the_one_that_kafka_checks_first_is_answered(how: dict[str, Any], code: ErrorCode) -> None:
    response, _ = sent(**how)
    assert (response.error_code, response.response_data) == (code, None)
