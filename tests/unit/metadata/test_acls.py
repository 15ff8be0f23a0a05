"""Creating ACLs: the host may be an address, `*` or, from metadata.version 4.4-IV1 on, a range of addresses."""

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.acl_types import Acl, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.protocol.error_code import ErrorCode
from tests.support.controllers import Cluster


def on_host(host: str) -> Acl:
    rights = (AclOperation.READ, PermissionType.ALLOW)
    return Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", host, *rights)


@pytest.mark.parametrize(
    ("level", "host", "refusal"),
    [
        (32, "10.0.0.0/8", None),
        (31, "10.0.0.1", None),
        (31, "*", None),
        (
            31,
            "10.0.0.0/8",
            (ErrorCode.UNSUPPORTED_VERSION, "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."),
        ),
        (
            33,
            "10.0.0.0/33",
            (ErrorCode.INVALID_REQUEST, "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"),
        ),
        (30, "", (ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")),
    ],
)
def test_hosts_of_acls(level: int, host: str, refusal: tuple[int, str] | None) -> None:
    cluster = Cluster(features={"metadata.version": level})

    (error,) = cluster.commit(cluster.controller.acls.decide_create([on_host(host)]))

    found = (error.code, error.message) if isinstance(error, ApiError) else None
    assert found == refusal
    assert len(cluster.image.acls) == (refusal is None)
