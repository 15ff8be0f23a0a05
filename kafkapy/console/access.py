"""ACLs, quotas and SCRAM users. Shows names and numbers only, never a secret."""

from typing import Any, Final

from kafkapy.console.brokers import Brokers, ClusterError, check
from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.describe_acls_request import DescribeAclsRequest
from kafkapy.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from kafkapy.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest

ANY: Final = 1
TOPIC: Final = 2
MATCHING: Final = 2
"""Of a name's rules: literal ones, those of a prefix, and those of all names."""
MATCH_ANY: Final = 2
MAX_ROWS: Final = 1000
"""Rows of a table that a browser lays out at once; people filter larger ones by name."""
RESOURCE_TYPES: Final = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
PATTERN_TYPES: Final = {3: "literal", 4: "prefixed"}
OPERATIONS: Final = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster action",
    10: "describe configs",
    11: "alter configs",
    12: "idempotent write",
    13: "create tokens",
    14: "describe tokens",
    15: "two phase commit",
}
PERMISSIONS: Final = {2: "deny", 3: "allow"}
ENTITY_TYPES: Final = ("user", "client-id", "ip")
"""The types of entities with quotas."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(frozen=True, slots=True)
class Acl:
    resource_type: str
    resource: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class Quota:
    """`entity`: pairs of type and name, None for the default; `values`: limits by key."""

    entity: tuple[tuple[str, str | None], ...]
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Rows, or the reason why there are none."""

    rows: list[Any]
    error: str | None


def section(read: Any, brokers: Brokers) -> Section:
    try:
        rows = read(brokers)
    except ClusterError as error:
        return Section([], str(error))
    return Section(rows[:MAX_ROWS], f"Only the first {MAX_ROWS} are shown." if len(rows) > MAX_ROWS else None)


def acls(brokers: Brokers, topic: str | None = None) -> list[Acl]:
    """Return all ACLs, or those that say something about a topic."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY if topic is None else TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=ANY if topic is None else MATCHING,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = brokers.call(None, request, 2)
    check(response.error_code, response.error_message)
    found = [
        Acl(
            RESOURCE_TYPES.get(resource.resource_type, "unknown"),
            resource.resource_name,
            PATTERN_TYPES.get(resource.pattern_type, "unknown"),
            acl.principal,
            acl.host,
            OPERATIONS.get(acl.operation, "unknown"),
            PERMISSIONS.get(acl.permission_type, "unknown"),
        )
        for resource in response.resources
        for acl in resource.acls
    ]
    return sorted(found, key=lambda each: (each.resource_type, each.resource, each.principal, each.operation))


def quotas(brokers: Brokers) -> list[Quota]:
    """Return the quotas of users, clients and addresses."""
    found: dict[tuple[Any, ...], Quota] = {}
    for entity_type in ENTITY_TYPES:
        request = DescribeClientQuotasRequest(
            [ComponentData(entity_type, match_type=MATCH_ANY, match=None)], strict=False
        )
        response = brokers.call(None, request, 1)
        check(response.error_code, response.error_message)
        for entry in response.entries or ():
            entity = tuple(sorted(((each.entity_type, each.entity_name) for each in entry.entity), reverse=True))
            values = tuple(sorted((each.key, each.value) for each in entry.values))
            found[entity] = Quota(entity, values)
    return sorted(found.values(), key=lambda each: str(each.entity))


def scram_users(brokers: Brokers) -> list[tuple[str, str, int]]:
    """Return the user, mechanism and iterations of each credential."""
    response = brokers.call(None, DescribeUserScramCredentialsRequest(None), 0)
    check(response.error_code, response.error_message)
    return sorted(
        (user.user, MECHANISMS.get(each.mechanism, "unknown"), each.iterations)
        for user in response.results
        for each in user.credential_infos
    )
