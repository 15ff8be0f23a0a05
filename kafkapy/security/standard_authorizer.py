"""Authorization by the ACLs in the metadata, with the decisions of Apache Kafka's StandardAuthorizer (KIP-801).

The first rule that applies decides: 1. a super user is allowed everything; 2. a matching DENY ACL denies; 3. a matching
ALLOW ACL allows; 4. if the resource has no ACL at all, for any principal, allow.everyone.if.no.acl.found decides;
5. otherwise deny. An ALLOW of READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALTER_CONFIGS also allows
DESCRIBE_CONFIGS; a DENY has no such implications.

Decisions are cached until the ACLs change. The audit log is an interface that the caller provides.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kafkapy.metadata.acl_types import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kafkapy.metadata.cidr import is_in_range
from kafkapy.named_tuple import NamedTuple
from kafkapy.security.acl_index import AclIndex, Acls, details
from kafkapy.security.authorizer import AuthorizerNotReadyError, Requester

MAX_REMEMBERED: Final = 16_384
"""Maximum cached decisions; the cache is cleared when full."""
MAX_REMEMBERED_NAME: Final = 249
"""Characters, the maximum of a topic name. Decisions about longer names are not cached."""
SOME_RESOURCE: Final = "hardcode"
"""The resource name that Apache Kafka checks before it searches the ACLs of a resource type."""

_EVERY_NAME: Final = (PatternType.LITERAL, WILDCARD)
_IMPLIES_DESCRIBE: Final = frozenset(
    (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
)
_IMPLIES_DESCRIBE_CONFIGS: Final = frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS))


class Rule(NamedTuple):
    """The decision and the rule that made it."""

    is_allowed: bool
    acl: Acl | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name if self.acl is None else f"MatchingAcl(acl={self.acl})"


SUPER_USER: Final = Rule(True, name="SuperUser")
DEFAULT_ALLOW: Final = Rule(True, name="DefaultAllow")
DEFAULT_DENY: Final = Rule(False, name="DefaultDeny")


class Question(NamedTuple):
    """One check with its decision, for the audit log."""

    requester: Requester
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    reference_count: int
    rule: Rule


class AuditLog(Protocol):
    """Where decisions are logged: `kafka.authorizer.logger`, as in Apache Kafka."""

    def is_enabled(self, *, is_allowed: bool, is_worth_telling: bool) -> bool:
        """Return whether such a decision is logged; an unimportant one is logged at trace level only."""
        ...

    def write(self, question: Question, *, is_worth_telling: bool) -> None: ...


class StandardAuthorizer:
    """The Authorizer that uses the ACLs of the newest image."""

    allows_everything: Final = False

    def __init__(
        self,
        acls: Callable[[], Acls | None],
        *,
        super_users: frozenset[str],
        allow_everyone_if_no_acl_found: bool,
        audit_log: AuditLog,
    ) -> None:
        """`acls` returns the image's ACLs, None before an image is loaded; the same object while they are unchanged."""
        self._acls = acls
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allow_everyone_if_no_acl_found else DEFAULT_DENY
        self._audit_log = audit_log
        self._index = AclIndex()
        self._indexed: Acls | None = None
        self._remembered: dict[tuple[str, str, int, int, str], Rule] = {}
        self._remembered_types: dict[tuple[str, str, int, int], bool] = {}

    @property
    def logs_what_it_allows(self) -> bool:
        return self._audit_log.is_enabled(is_allowed=True, is_worth_telling=True)

    def authorize(
        self,
        requester: Requester,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        reference_count: int = 1,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> bool:
        rule = self.decide(requester.principal, requester.client_host, operation, resource_type, resource_name)
        is_allowed = rule.is_allowed
        is_worth_telling = log_if_allowed if is_allowed else log_if_denied
        if self._audit_log.is_enabled(is_allowed=is_allowed, is_worth_telling=is_worth_telling):
            question = Question(requester, operation, resource_type, resource_name, reference_count, rule)
            self._audit_log.write(question, is_worth_telling=is_worth_telling)
        return is_allowed

    def is_allowed(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        return self.decide(
            requester.principal, requester.client_host, operation, resource_type, resource_name
        ).is_allowed

    def authorize_by_resource_type(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        if self.authorize(requester, operation, resource_type, SOME_RESOURCE, reference_count=0, log_if_denied=False):
            return True
        key = (requester.principal, requester.client_host, operation, resource_type)
        response = self._remembered_types.get(key)
        if response is None:
            response = _may_do_to_any(self._index, *key)
            if len(self._remembered_types) >= MAX_REMEMBERED:
                self._remembered_types.clear()
            self._remembered_types[key] = response
        return response

    def decide(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> Rule:
        """Return the rule that decides. Raises AuthorizerNotReadyError."""
        if principal in self._super_users:
            return SUPER_USER
        if self._acls() is not self._indexed:
            self.refresh()
        if self._indexed is None:
            raise AuthorizerNotReadyError
        key = (principal, host, operation, resource_type, resource_name)
        rule = self._remembered.get(key)
        if rule is None:
            rule = _find_rule(self._index, *key) or self._default
            if len(resource_name) <= MAX_REMEMBERED_NAME:
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = rule
        return rule

    def refresh(self) -> None:
        """Load the newest ACLs now; otherwise the next check does."""
        self._indexed = self._acls()
        self._index.update(self._indexed or {})
        self._remembered.clear()
        self._remembered_types.clear()


def _find_rule(
    index: AclIndex, principal: str, host: str, operation: int, resource_type: int, resource_name: str
) -> Rule | None:
    """Return the rule of the matching ACLs, None if the resource has no ACL.

    Of several ACLs it is the first that denies, otherwise the last that allows, in Apache Kafka's order: the audit log
    names it.
    """
    has_acls = False
    allowing: Acl | None = None
    for bucket in index.buckets(resource_type, resource_name):
        has_acls = True
        applying = [
            acl
            for each in {principal, WILDCARD_PRINCIPAL}
            for acl in bucket.get(each, ())
            if _is_of_host(acl, host) and _concerns(acl, operation)
        ]
        denying = [acl for acl in applying if acl.permission_type != PermissionType.ALLOW]
        if denying:
            return Rule(False, min(denying, key=details))
        allowing = max(applying, key=details, default=allowing)
    if allowing is not None:
        return Rule(True, allowing)
    return DEFAULT_DENY if has_acls else None


def _is_of_host(acl: Acl, host: str) -> bool:
    return acl.host in (WILDCARD, host) or is_in_range(host, acl.host)


def _concerns(acl: Acl, operation: int) -> bool:
    """Return whether an ACL applies to an operation, directly or by implication."""
    if acl.operation in (AclOperation.ALL, operation):
        return True
    if acl.permission_type != PermissionType.ALLOW:
        return False
    if operation == AclOperation.DESCRIBE:
        return acl.operation in _IMPLIES_DESCRIBE
    return operation == AclOperation.DESCRIBE_CONFIGS and acl.operation in _IMPLIES_DESCRIBE_CONFIGS


def _may_do_to_any(index: AclIndex, principal: str, host: str, operation: int, resource_type: int) -> bool:
    """Return whether the ACLs allow an operation on any resource of a type (KIP-679).

    An ALLOW ACL counts unless a DENY ACL dominates it: of the wildcard, the same pattern, or a prefix of its name.
    """
    applying = [
        acl
        for acl in index.of_principal(resource_type, principal)
        if _is_of_host(acl, host) and acl.operation in (AclOperation.ALL, operation)
    ]
    denied = {_pattern(acl) for acl in applying if acl.permission_type == PermissionType.DENY}
    allowed = {_pattern(acl) for acl in applying if acl.permission_type == PermissionType.ALLOW}
    if _EVERY_NAME in denied or _EVERY_NAME in allowed:
        return _EVERY_NAME not in denied
    lengths = {len(name) for pattern_type, name in denied if pattern_type == PatternType.PREFIXED}
    return any(
        pattern not in denied and not any((PatternType.PREFIXED, pattern[1][:length]) in denied for length in lengths)
        for pattern in allowed
    )


def _pattern(acl: Acl) -> tuple[int, str]:
    return acl.pattern_type, acl.resource_name
