"""The question every handler asks: may this principal do that to this resource?

The enums carry Kafka's codes (AclOperation, ResourceType), as in the ACL APIs and in authorized-operations bit fields.
`AllowAll` is the answer while no authorizer.class.name is set, which is Apache Kafka's default, too. Each question
becomes a line of the audit log (`kafka.authorizer.logger`), so handlers ask exactly what Apache Kafka's handlers ask.
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
"""Which operations a resource type knows (AclEntry.supportedOperations)."""


class AuthorizerNotReadyError(ApiError):
    """The ACLs are not loaded yet. Kafka has no code of its own for it and answers UNKNOWN_SERVER_ERROR."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message)


class Asker(Protocol):
    """What of a request the decision and its line in the audit log depend on; RequestContext is one."""

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
    """Answers questions. Each method may raise AuthorizerNotReadyError."""

    @property
    def allows_everything(self) -> bool:
        """Whether no authorizer is configured: then hot paths need not ask at all."""
        ...

    @property
    def logs_what_it_allows(self) -> bool:
        """Whether a question that is granted gets a line in the audit log now."""
        ...

    def authorize(
        self,
        asker: Asker,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        reference_count: int = 1,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> bool:
        """Answer, and write a line into the audit log.

        `reference_count`: how often the request names the resource. `log_if_allowed` is false if an answer of yes gives
        no access (authorized operations), `log_if_denied` if an answer of no refuses nothing (a filter; a right to the
        cluster that is asked for before the topic's).
        """
        ...

    def is_allowed(
        self, asker: Asker, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        """Answer without a line in the audit log, for a caller whose request is going to be asked about again."""
        ...

    def authorize_by_resource_type(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Answer whether the asker may do that to at least one resource of the type (KIP-679)."""
        ...

    def refresh(self) -> None:
        """Take over the newest ACLs now, so that the next question need not."""
        ...


class AllowAll:
    """The authorizer of a broker without authorizer.class.name: everybody may do everything."""

    allows_everything: Final = True
    logs_what_it_allows: Final = False

    def authorize(
        self,
        asker: Asker,
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
        self, asker: Asker, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        return True

    def authorize_by_resource_type(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True

    def refresh(self) -> None:
        """Nothing to take over."""


def operations_bits(operations: Iterable[AclOperation]) -> int:
    """Return the authorized-operations bit field of Metadata, DescribeCluster and DescribeGroups (KIP-430)."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


def authorized_operations(authorizer: Authorizer, asker: Asker, resource_type: ResourceType, resource_name: str) -> int:
    """Return the bit field of all operations that the asker may do to the resource."""
    if authorizer.allows_everything:
        return operations_bits(SUPPORTED_OPERATIONS[resource_type])
    return operations_bits(
        operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorizer.authorize(
            asker, operation, resource_type, resource_name, log_if_allowed=False, log_if_denied=False
        )
    )
