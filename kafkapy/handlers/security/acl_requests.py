"""Shared by DescribeAcls, CreateAcls and DeleteAcls: filters, and whether ACLs are enabled."""

from typing import Protocol

from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import Services
from kafkapy.metadata.acl_types import AclFilter


class WireFilter(Protocol):
    """DescribeAclsRequest, or a filter of DeleteAclsRequest."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def is_disabled(services: Services) -> bool:
    """Return whether there is no authorizer: existing ACLs are kept then, but neither described nor changed."""
    return services.authorizer.allows_everything


def filter_of(requested: WireFilter) -> AclFilter:
    """Return the filter. Raises ProtocolError for a code 0 (UNKNOWN): Apache Kafka closes the connection, too."""
    codes = (
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.operation,
        requested.permission_type,
    )
    if 0 in codes:
        raise ProtocolError("a filter of ACLs has an unknown code")
    return AclFilter(
        resource_type=requested.resource_type_filter,
        resource_name=requested.resource_name_filter,
        pattern_type=requested.pattern_type_filter,
        principal=requested.principal_filter,
        host=requested.host_filter,
        operation=requested.operation,
        permission_type=requested.permission_type,
    )
