"""An ACL in words: "allow alice read topic:orders", "deny * all group:test-*", "allow bob alter cluster".

A name that ends in * is a prefix; * alone means every resource of its type.
"""

from typing import Final, TypeVar

from kafkapy.errors import KafkapyError, quoted
from kafkapy.metadata.acl_types import WILDCARD, Acl, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.security.authorizer import CLUSTER_NAME

WORDS: Final = 4
Kind = TypeVar("Kind", ResourceType, AclOperation, PermissionType)


class AclTextError(KafkapyError):
    """A text that is not a valid ACL."""


def parse_acl(text: str, *, host: str = WILDCARD) -> Acl:
    """Return the ACL. Raises AclTextError."""
    words = text.split()
    if len(words) != WORDS:
        raise AclTextError(f"{quoted(text)} must read `allow|deny USER OPERATION TYPE:NAME`")
    permission, user, operation, resource = words
    resource_type, name, pattern_type = parse_resource(resource)
    if resource_type is ResourceType.CLUSTER:
        name = name or CLUSTER_NAME
    if not name:
        raise AclTextError(f"{quoted(text)}: the resource has no name")
    return Acl(
        resource_type,
        name,
        pattern_type,
        principal_of(user),
        host,
        _member(AclOperation, operation, "operation"),
        _member(PermissionType, permission, "permission"),
    )


def parse_resource(text: str) -> tuple[ResourceType, str, PatternType]:
    """Return type, name and pattern of TYPE:NAME; the name is "" if there is none. Raises AclTextError."""
    kind, _, name = text.partition(":")
    resource_type = _member(ResourceType, kind, "resource type")
    if name.endswith("*") and name != WILDCARD:
        return resource_type, name[:-1], PatternType.PREFIXED
    return resource_type, name, PatternType.LITERAL


def principal_of(user: str) -> str:
    """Return the principal of a user's name; a principal is returned as it is."""
    return user if ":" in user else f"User:{user}"


def _member(kind: type[Kind], name: str, what: str) -> Kind:
    known = {member.name: member for member in kind if member.name not in ("UNKNOWN", "ANY")}
    found = known.get(name.upper().replace("-", "_"))
    if found is None:
        raise AclTextError(f"{quoted(name)} is no {what}: choose among {', '.join(known).lower()}")
    return found
