"""What a client is answered if no controller takes its request: the error, where each API has room for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.config.node import NodeConfig
from kafkapy.handlers.table import BROKER_APIS, FORWARDED_APIS
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.api import request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages import alter_client_quotas_request as quotas
from kafkapy.protocol.messages import alter_user_scram_credentials_request as scram
from kafkapy.protocol.messages import create_acls_request as acls
from kafkapy.protocol.messages import create_partitions_request as partitions
from kafkapy.protocol.messages import create_topics_request as topics
from kafkapy.protocol.messages import delete_acls_request as deleted_acls
from kafkapy.protocol.messages import delete_topics_request as deleted_topics
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.serving.router import Router
from tests.simulator.loop import SimLoop
from tests.support.bearer_tokens import ImmediatePool
from tests.support.metadata_services import walking

ACL = {"resource_type": 2, "permission_type": 3, "operation": 3}
ENTITY = [quotas.EntityData(entity_type="user", entity_name="alice")]

OF_PARTS: dict[int, tuple[Any, Callable[[Any], list[Any]]]] = {
    19: (
        topics.CreateTopicsRequest(topics=[topics.CreatableTopic(name=name, num_partitions=1) for name in "ab"]),
        lambda response: [(each.name, each.error_code) for each in response.topics],
    ),
    20: (
        deleted_topics.DeleteTopicsRequest(topics=[deleted_topics.DeleteTopicState(name=name) for name in "ab"]),
        lambda response: [(each.name, each.error_code) for each in response.responses],
    ),
    30: (
        acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(resource_name=name, resource_pattern_type=3, principal="User:alice", host="*", **ACL)
                for name in "ab"
            ]
        ),
        lambda response: [(name, each.error_code) for name, each in zip("ab", response.results, strict=True)],
    ),
    31: (
        deleted_acls.DeleteAclsRequest(
            filters=[
                deleted_acls.DeleteAclsFilter(
                    resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3
                )
                for _ in "ab"
            ]
        ),
        lambda response: [(name, each.error_code) for name, each in zip("ab", response.filter_results, strict=True)],
    ),
    37: (
        partitions.CreatePartitionsRequest(
            topics=[partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in "ab"]
        ),
        lambda response: [(each.name, each.error_code) for each in response.results],
    ),
    49: (
        quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=ENTITY) for _ in "ab"]),
        lambda response: [(name, each.error_code) for name, each in zip("ab", response.entries, strict=True)],
    ),
    51: (
        scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name=name, mechanism=1) for name in "ab"]
        ),
        lambda response: [(each.user, each.error_code) for each in response.results],
    ),
}
"""The APIs whose errors are those of topics, ACLs, users: a request about "a" and "b", and their errors."""


class Allowing:
    """An authorizer that allows all, unlike none at all."""

    allows_everything = False

    def authorize(self, *_: object, **__: object) -> bool:
        return True


class Refusing:
    """An active controller elsewhere, which does not let this broker pass requests on."""

    is_local = False

    async def call(self, _envelope: object) -> EnvelopeResponse:
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def router() -> Router:
    config = SimpleNamespace(
        node=NodeConfig(node_id=1, process_roles=("broker",), request_timeout_ms=1000),
        network=SimpleNamespace(socket_request_max_bytes=1 << 20),
        security=SimpleNamespace(authorizer_class_name="x"),
    )
    services: Any = SimpleNamespace(
        apis=BROKER_APIS,
        active_controller=Refusing(),
        authorizer=Allowing(),
        config=config,
        client_quotas=None,
        decoded=DecodedRequests(),
        io_pool=ImmediatePool(),
        metadata=SimpleNamespace(image=MetadataImage()),
        metadata_changes=None,
        telemetry=None,
        **walking(),
    )
    return Router(services)


async def answered(request: Any) -> Any:
    """Return the response to a request in its newest version."""
    version = BROKER_APIS[request.API_KEY].max_version
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=7, client_id="c")
    request.write(out, version)
    connection = ConnectionInfo("", "PLAINTEXT", "PLAINTEXT", "10.0.0.7", 4000, principal="User:alice")
    response = bytes(await router().route(connection, memoryview(bytes(out))) or b"")
    correlation_id, position = read_response_header(memoryview(response), request.API_KEY, version)
    assert correlation_id == 7
    return response_type(request.API_KEY).decode(memoryview(response)[position:], version)


@pytest.mark.parametrize("api_key", sorted(FORWARDED_APIS - OF_PARTS.keys()))
async def test_a_request_as_a_whole_gets_the_error(loop: SimLoop, api_key: int) -> None:
    response = await answered(request_type(api_key)())
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("api_key", sorted(OF_PARTS))
async def test_each_part_of_a_request_gets_the_error(loop: SimLoop, api_key: int) -> None:
    request, codes = OF_PARTS[api_key]
    assert codes(await answered(request)) == [(name, ErrorCode.UNKNOWN_SERVER_ERROR) for name in "ab"]
