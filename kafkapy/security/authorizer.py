"""The authorizer interface of the handlers: may this principal perform this operation on this resource?

The enums have Kafka's codes (AclOperation, ResourceType), as in the ACL APIs and in authorized-operations bit fields.
`AllowAll` is used if authorizer.class.name is not set, which is also Apache Kafka's default. Each check can write a
line to the audit log (`kafka.authorizer.logger`), so handlers make exactly the checks of Apache Kafka's handlers.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from kafkapy.errors import ApiError
from kafkapy.metadata.acl_types import AclOperation as AclOperation
from kafkapy.metadata.acl_types import ResourceType as ResourceType
from kafkapy.protocol.error_code import ErrorCode

CLUSTER_NAME = "kafka-cluster"
"""The only resource name of ResourceType.CLUSTER."""


SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations of each resource type (AclEntry.supportedOperations)."""


class AuthorizerNotReadyError(ApiError):
    """The ACLs are not loaded yet. Kafka has no error code for this and answers UNKNOWN_SERVER_ERROR."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message)


class Requester(Protocol):
    """The part of a request that the decision and the audit log need; RequestContext implements it."""

    @property
    def api_key(self) -> int: ...

    @property
    def principal(self) -> str:
        """`type:name`, such as `User:alice`; `User:ANONYMOUS` on a PLAINTEXT listener."""
        ...

    @property
    def client_host(self) -> str:
        """The client's address, as Java's InetAddress.getHostAddress prints it."""
        ...


class Authorizer(Protocol):
    """Makes authorization decisions. Each method may raise AuthorizerNotReadyError."""

    @property
    def allows_everything(self) -> bool:
        """Whether no authorizer is configured, so that hot paths can skip the checks."""
        ...

    @property
    def logs_what_it_allows(self) -> bool:
        """Whether allowed operations are currently written to the audit log."""
        ...

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
        """Return whether the operation is allowed, and write a line to the audit log.

        `reference_count`: how often the request names the resource. `log_if_allowed` is False if being allowed grants
        no access (authorized operations). `log_if_denied` is False if being denied refuses nothing (a filter, or a
        right to the cluster that is checked before the topic's).
        """
        ...

    def is_allowed(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        """Like authorize, without the audit log, for a request that will be authorized again."""
        ...

    def authorize_by_resource_type(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of the type (KIP-679)."""
        ...

    def refresh(self) -> None:
        """Load the newest ACLs now, so that the next check need not."""
        ...


class AllowAll:
    """The authorizer of a broker without authorizer.class.name: every operation is allowed."""

    allows_everything: Final = True
    logs_what_it_allows: Final = False

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
        return True

    def is_allowed(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        return True

    def authorize_by_resource_type(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return True

    def refresh(self) -> None:
        """There are no ACLs to load."""


def operations_bits(operations: Iterable[AclOperation]) -> int:
    """Return the authorized-operations bit field of Metadata, DescribeCluster and DescribeGroups (KIP-430)."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


def authorized_operations(
    authorizer: Authorizer, requester: Requester, resource_type: ResourceType, resource_name: str
) -> int:
    """Return the bit field of all operations that the requester may perform on the resource."""
    if authorizer.allows_everything:
        return operations_bits(SUPPORTED_OPERATIONS[resource_type])
    return operations_bits(
        operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorizer.authorize(
            requester, operation, resource_type, resource_name, log_if_allowed=False, log_if_denied=False
        )
    )
