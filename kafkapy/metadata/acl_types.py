"""ACLs as values: their fields, how filters match them, and Apache Kafka's order of them.

Source: KIP-11, KIP-290 (prefixed patterns), org.apache.kafka.common.acl. The enums have Kafka's codes.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kafkapy.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord


WILDCARD: Final = "*"
"""The resource name of a literal pattern that matches every resource of its type; as host, it matches every host."""
WILDCARD_PRINCIPAL: Final = "User:*"


class _AclCode(IntEnum):
    """A field of an ACL, by Kafka's code."""

    @classmethod
    def _missing_(cls, value: object) -> "_AclCode | None":
        """Return UNKNOWN for a code of a later release, as Apache Kafka does."""
        return cls(0) if isinstance(value, int) else None


class AclOperation(_AclCode):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_AclCode):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_AclCode):
    UNKNOWN = 0
    ANY = 1
    """In filters: patterns of any type with exactly this name."""
    MATCH = 2
    """In filters: every pattern that applies to a resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class PermissionType(_AclCode):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One access control entry with its resource pattern, without its id. Unknown codes stay numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of(cls, record: "AccessControlEntryRecord") -> "Acl":
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def record(self, acl_id: bytes) -> "AccessControlEntryRecord":
        from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord

        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )

    def __str__(self) -> str:
        """Return the text that Apache Kafka writes to its audit log."""
        return (
            f"StandardAcl[resourceType={ResourceType(self.resource_type).name}, "
            f"resourceName={self.resource_name}, patternType={PatternType(self.pattern_type).name}, "
            f"principal={self.principal}, host={self.host}, operation={AclOperation(self.operation).name}, "
            f"permissionType={PermissionType(self.permission_type).name}]"
        )


class AclFilter(NamedTuple):
    """The filter of DescribeAcls and DeleteAcls. None and ANY match every value."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY

    def matches(self, acl: "Acl | AccessControlEntryRecord") -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: "Acl | AccessControlEntryRecord") -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


def in_order(acls: list[Acl]) -> list[Acl]:
    """Return ACLs in Kafka's order: by type, then by name from Z to A (longer names first), pattern, operation, ..."""
    by_details = sorted(
        acls,
        key=lambda acl: (acl.pattern_type, acl.operation, acl.principal, acl.host, acl.permission_type),
    )
    by_name = sorted(by_details, key=lambda acl: acl.resource_name, reverse=True)
    return sorted(by_name, key=lambda acl: acl.resource_type)
