"""ApiVersions of a broker whose active controller is another node: what both can do. KIP-590."""

from types import SimpleNamespace
from typing import Any

from kafkapy.config.node import NodeConfig
from kafkapy.handlers.cluster import api_versions
from kafkapy.handlers.encoded_responses import EncodedResponse, VersionResponses
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse

CREATE_TOPICS, DELETE_TOPICS, CREATE_ACLS, ALTER_CONFIGS, ADD_RAFT_VOTER = 19, 20, 30, 33, 80
LEGACY_APIS = [key for key, row in BROKER_APIS.items() if row.has_legacy]
ALL = {key: (row.listed_min, row.max_version) for key, row in BROKER_APIS.items()}


def services_with(versions: dict[int, tuple[int, int]] | None, *, is_legacy: bool = False) -> Any:
    return SimpleNamespace(
        apis=BROKER_APIS,
        telemetry=SimpleNamespace(),
        active_controller=SimpleNamespace(api_versions=versions),
        config=SimpleNamespace(
            node=NodeConfig(node_id=1, process_roles=("broker",), kafkapy_legacy_clients_enable=is_legacy)
        ),
        metadata=SimpleNamespace(image=MetadataImage()),
        quorum=SimpleNamespace(finalized_kraft_version=1),
        version_responses=VersionResponses(),
    )


async def listed(services: Any) -> dict[int, tuple[int, int]]:
    context: Any = SimpleNamespace(api_version=0, meter=None)
    response = await api_versions.handle(services, context, ApiVersionsRequest())
    if isinstance(response, EncodedResponse):
        response = ApiVersionsResponse.decode(memoryview(response.body), 0)
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


async def test_forwarded_apis_are_listed_as_far_as_the_controller_has_them() -> None:
    older = {**ALL, 0: (0, 5), CREATE_TOPICS: (0, 6), DELETE_TOPICS: (5, 9), ALTER_CONFIGS: (7, 9)}
    del older[ADD_RAFT_VOTER]
    shown = await listed(services_with(older))
    assert (shown[CREATE_TOPICS], shown[DELETE_TOPICS]) == ((2, 6), (5, 6))
    assert {ADD_RAFT_VOTER, ALTER_CONFIGS}.isdisjoint(shown), "there is no common version"
    unchanged = ALL.keys() - {CREATE_TOPICS, DELETE_TOPICS, ADD_RAFT_VOTER, ALTER_CONFIGS}
    assert {key: shown[key] for key in unchanged} == {key: ALL[key] for key in unchanged}, "Produce is not forwarded"


async def test_without_a_controller_elsewhere_the_broker_lists_its_own() -> None:
    assert await listed(services_with(None)) == ALL


async def test_another_controller_is_noticed() -> None:
    services = services_with({**ALL, CREATE_ACLS: (1, 2)})
    assert (await listed(services))[CREATE_ACLS] == (1, 2)
    services.active_controller.api_versions = dict(ALL)
    assert (await listed(services))[CREATE_ACLS] == (1, 3)


async def test_versions_of_older_clients_are_not_the_controllers_business() -> None:
    shown = await listed(services_with({**ALL, CREATE_TOPICS: (2, 6)}, is_legacy=True))
    assert {key: shown[key][0] for key in LEGACY_APIS} == dict.fromkeys(LEGACY_APIS, 0)
    assert shown[CREATE_TOPICS] == (0, 6)
