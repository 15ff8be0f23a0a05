"""The broker's authorizer, and Kafka's audit log: the logger `kafka.authorizer.logger`.

Denied questions are logged at INFO, granted ones at DEBUG. Questions that do not decide a request by themselves
(authorized operations, filters) are at TRACE.
"""

import logging
from typing import TYPE_CHECKING, Final

from kafkapy.metadata.acl_types import ResourceType
from kafkapy.protocol.api import APIS
from kafkapy.security.authorizer import Authorizer
from kafkapy.security.standard_authorizer import Question, StandardAuthorizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkapy.config.security import SecurityConfig
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.security.acl_index import Acls

TRACE: Final = 5
RESOURCE_NAMES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}

logger = logging.getLogger("kafka.authorizer.logger")
server_logger = logging.getLogger("kafkapy.server")


class KafkaAuditLog:
    """A standard_authorizer.AuditLog."""

    def is_enabled(self, *, is_allowed: bool, is_worth_telling: bool) -> bool:
        return logger.isEnabledFor(_level(is_allowed=is_allowed, is_worth_telling=is_worth_telling))

    def write(self, question: Question, *, is_worth_telling: bool) -> None:
        level = _level(is_allowed=question.rule.is_allowed, is_worth_telling=is_worth_telling)
        logger.log(level, "%s", line_of(question))


def _level(*, is_allowed: bool, is_worth_telling: bool) -> int:
    if not is_worth_telling:
        return TRACE
    return logging.DEBUG if is_allowed else logging.INFO


def line_of(question: Question) -> str:
    """Return Kafka's line. Deviation: Apache Kafka writes names as they are. Here unprintable characters are escaped,
    because a name could forge a line."""
    requester = question.requester
    line = (
        f"Principal = {requester.principal} is {'Allowed' if question.rule.is_allowed else 'Denied'} "
        f"operation = {question.operation.name} from host = {requester.client_host} "
        f"on resource = {RESOURCE_NAMES[question.resource_type]}:LITERAL:{question.resource_name} "
        f"for request = {api_name(requester.api_key)} with resourceRefCount = {question.reference_count} "
        f"based on rule {question.rule}"
    )
    return line if line.isprintable() else line.encode("unicode_escape").decode("ascii")


def api_name(api_key: int) -> str:
    return APIS[api_key].request_name.removesuffix("Request")


class LoadedAcls:
    """The ACLs of the image; None until the metadata is caught up: until then only super users are authorized.

    Only the controller listeners in early.start.listeners (all, by default) serve before that: the nodes of a quorum
    have to be super users, as in Apache Kafka. Client listeners serve later, in Apache Kafka too.
    """

    def __init__(self, image: "Callable[[], MetadataImage | None]") -> None:
        """`image` returns None before the metadata is caught up."""
        self._image = image
        self._has_warned = False

    def __call__(self) -> "Acls | None":
        image = self._image()
        if image is not None:
            return image.acls
        if not self._has_warned:
            self._has_warned = True
            server_logger.warning(
                "Refused a request that came before the ACLs were loaded: the nodes of a cluster have to be super "
                "users, by their principals on the controllers' listener (super.users)"
            )
        return None


def new_authorizer(security: "SecurityConfig", acls: "Callable[[], Acls | None]") -> Authorizer:
    """Return the authorizer of authorizer.class.name (config/checks.py has the list of them)."""
    super_users = frozenset(user for user in (each.strip() for each in security.super_users.split(";")) if user)
    default = "ALLOWED" if security.allow_everyone_if_no_acl_found else "DENIED"
    server_logger.info("set super.users=%s, default result=%s", ",".join(sorted(super_users)), default)
    return StandardAuthorizer(
        acls,
        super_users=super_users,
        allow_everyone_if_no_acl_found=security.allow_everyone_if_no_acl_found,
        audit_log=KafkaAuditLog(),
    )
