"""DescribeAcls, CreateAcls and DeleteAcls: results for each, filters, and what is told without an authorizer."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.handlers.security import create_acls, delete_acls, describe_acls
from kafkapy.metadata.acl_types import AclFilter, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.metadata.limits import MAX_RECORDS_PER_OPERATION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkapy.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from kafkapy.protocol.messages.describe_acls_request import DescribeAclsRequest
from kafkapy.security.authorizer import AllowAll
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster
from tests.support.metadata_services import Deny, context, on_wire, response_of, services

VERSIONS = (1, 2, 3)
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str = "orders", **fields: Any) -> AclCreation:
    values = {
        "resource_type": ResourceType.TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": PermissionType.ALLOW,
    }
    return AclCreation(resource_name=name, **{**values, **fields})


def create(running: Any, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    response = response_of(create_acls.handle(running, context(version), CreateAclsRequest(creations=list(creations))))
    return [(each.error_code, each.error_message) for each in on_wire(response, version).results]


def wire(requested: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": requested.resource_type,
        "resource_name_filter": requested.resource_name,
        "pattern_type_filter": requested.pattern_type,
        "principal_filter": requested.principal,
        "host_filter": requested.host,
        "operation": requested.operation,
        "permission_type": requested.permission_type,
    }


def delete(running: Any, *filters: AclFilter, version: int = 3) -> list[Any]:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**wire(each)) for each in filters])
    results: list[Any] = on_wire(
        response_of(delete_acls.handle(running, context(version), request)), version
    ).filter_results
    return results


def names(running: Any, requested: AclFilter = AclFilter(), version: int = 3) -> list[str]:  # noqa: B008
    request = DescribeAclsRequest(**wire(requested))
    response = on_wire(response_of(describe_acls.handle(running, context(version), request)), version)
    assert response.error_code == 0
    return [resource.resource_name for resource in response.resources for _ in resource.acls]


@pytest.mark.parametrize("version", VERSIONS)
def test_acls_are_created_described_and_deleted_at_every_version(version: int) -> None:
    running = services(Cluster(broker_count=1))
    assert create(running, acl(), acl(principal="User:bob"), version=version) == [(0, None)] * 2
    assert names(running, version=version) == ["orders", "orders"]
    (result,) = delete(running, AclFilter(principal="User:bob"), version=version)
    (matching,) = result.matching_acls
    assert (result.error_code, matching.error_code, matching.principal) == (0, 0, "User:bob")
    assert names(running, version=version) == ["orders"]


def test_one_that_exists_succeeds_without_a_record() -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    create(running, acl())
    end = cluster.controller.next_offset
    assert create(running, acl(), acl()) == [(0, None)] * 2
    assert cluster.controller.next_offset == end
    assert create(running, acl("new"), acl("new")) == [(0, None)] * 2
    assert cluster.controller.next_offset == end + 1


def test_each_has_a_result_of_its_own() -> None:
    running = services(Cluster(broker_count=1))
    results = create(
        running,
        acl(),
        acl(""),
        acl("mine", resource_type=ResourceType.CLUSTER),
        acl(resource_type=ResourceType.ANY),
        acl(resource_pattern_type=PatternType.MATCH),
        acl(operation=99),
        acl(permission_type=PermissionType.ANY),
        acl(principal="alice"),
    )
    assert results[0] == (0, None)
    assert {code for code, _ in results[1:]} == {ErrorCode.INVALID_REQUEST}
    assert [message for _, message in results[1:]] == [
        "Invalid empty resource name",
        "The only valid name for the CLUSTER resource is kafka-cluster",
        "Invalid resourceType ANY",
        "Invalid patternType MATCH",
        "Invalid operation UNKNOWN",
        "Invalid permissionType ANY",
        "Could not parse principal from `alice` (no colon is present separating the principal type from the principal "
        "name)",
    ]
    assert names(running) == ["orders"]


def test_more_than_ten_thousand_are_refused_as_a_whole() -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    many = [acl(f"t{number}") for number in range(MAX_RECORDS_PER_OPERATION)]
    assert {code for code, _ in create(running, acl("one too many"), *many)} == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.image.acls
    assert {code for code, _ in create(running, *many)} == {0}
    assert [each.error_code for each in delete(running, AclFilter(), AclFilter(resource_name="t1"))] == [
        ErrorCode.INVALID_REQUEST
    ] * 2, "Apache Kafka counts one that is found twice, once there are as many"
    create(running, acl("one too many"))
    (result,) = delete(running, AclFilter())
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot remove more than 10000 acls in a single delete operation.",
    )
    assert len(cluster.image.acls) == MAX_RECORDS_PER_OPERATION + 1


def test_filters_match_by_name_by_pattern_or_by_what_applies() -> None:
    running = services(Cluster(broker_count=1))
    create(running, acl("*"), acl("order", resource_pattern_type=PREFIXED), acl("orders"), acl("orders-2"))

    def found(pattern_type: PatternType, name: str | None = "orders") -> list[str]:
        return names(running, AclFilter(resource_name=name, pattern_type=pattern_type))

    assert found(PatternType.MATCH) == ["orders", "order", "*"]
    assert found(PatternType.ANY) == found(LITERAL) == ["orders"]
    assert found(PREFIXED) == []
    assert found(PREFIXED, None) == ["order"]
    assert found(PatternType.ANY, None) == ["orders-2", "orders", "order", "*"]


def test_one_filter_may_be_unknown_and_others_not() -> None:
    running = services(Cluster(broker_count=1))
    create(running, acl())
    results = delete(running, AclFilter(resource_type=99), AclFilter(operation=99), AclFilter(), AclFilter())
    assert [(each.error_code, each.error_message) for each in results[:2]] == [
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
    ]
    assert [len(each.matching_acls) for each in results[2:]] == [1, 1]
    assert names(running) == []


def test_code_zero_is_no_request() -> None:
    running = services(Cluster(broker_count=1))
    with pytest.raises(ProtocolError):
        create(running, acl(operation=0))
    with pytest.raises(ProtocolError):
        delete(running, AclFilter(pattern_type=0))
    with pytest.raises(ProtocolError):
        names(running, AclFilter(permission_type=0))


async def test_filters_that_match_too_many_in_all_delete_nothing(loop: SimLoop) -> None:
    """As many times as MAX_MATCHES, and once more."""
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    create(running, *(acl(f"t{number}") for number in range(1000)))
    filters = [DeleteAclsFilter(**wire(AclFilter()))] * (delete_acls.MAX_MATCHES // 1000)
    one_more = DeleteAclsFilter(**wire(AclFilter(resource_name="t1")))
    asked: Any = SimpleNamespace(**vars(context(3)), connection=SimpleNamespace(is_held=False))

    response = await delete_acls.handle(running, asked, DeleteAclsRequest(filters=[*filters, one_more]))
    assert {(each.error_code, each.error_message) for each in response.filter_results} == {
        (ErrorCode.INVALID_REQUEST, "The filters match ACLs more than 100000 times.")
    }
    assert len(cluster.image.acls) == 1000
    response = await delete_acls.handle(running, asked, DeleteAclsRequest(filters=filters))
    assert {each.error_code for each in response.filter_results} == {0}
    assert len(cluster.image.acls) == 0


def test_acls_of_a_pattern_are_in_the_order_of_kafkas_authorizer() -> None:
    """By operation, principal, host and permission. Apache Kafka's responses have them in the order of a HashSet."""
    running = services(Cluster(broker_count=1))
    expected = [
        (operation, principal, host, permission)
        for operation in (READ, WRITE)
        for principal in ("User:alice", "User:bob")
        for host in ("*", "10.0.0.1")
        for permission in (PermissionType.DENY, PermissionType.ALLOW)
    ]
    made = [expected[(number * 7) % len(expected)] for number in range(len(expected))]
    create(
        running,
        *(acl(operation=each[0], principal=each[1], host=each[2], permission_type=each[3]) for each in made),
    )
    response = on_wire(
        response_of(describe_acls.handle(running, context(3), DescribeAclsRequest(**wire(AclFilter())))), 3
    )
    (resource,) = response.resources
    assert [(each.operation, each.principal, each.host, each.permission_type) for each in resource.acls] == expected


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.DESCRIBE])
def test_changes_need_alter_and_descriptions_describe(operation: AclOperation) -> None:
    running = services(Cluster(broker_count=1), authorizer=Deny((operation, "")))
    may_alter = operation != AclOperation.ALTER
    code = 0 if may_alter else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert create(running, acl())[0][0] == code
    assert delete(running, AclFilter())[0].error_code == code
    if not may_alter:
        assert names(running) == []
        return
    with pytest.raises(ApiError):
        names(running)


@pytest.mark.parametrize(
    ("authorizer", "code"),
    [
        (AllowAll(), ErrorCode.SECURITY_DISABLED),
        (Deny((AclOperation.ALTER, ""), (AclOperation.DESCRIBE, "")), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_without_an_authorizer_or_the_right_nothing_is_returned_or_changed(authorizer: Any, code: ErrorCode) -> None:
    cluster = Cluster(broker_count=1)
    create(services(cluster), acl())
    running = services(cluster, authorizer=authorizer)
    assert [each for each, _ in create(running, acl("new"), acl())] == [code] * 2
    assert [each.error_code for each in delete(running, AclFilter())] == [code]
    with pytest.raises(ApiError) as refused:
        names(running)
    assert refused.value.code == code
    assert names(services(cluster)) == ["orders"]
