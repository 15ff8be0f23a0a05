"""The audit log's lines and levels, and which authorizers there are."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.config.load import load
from kafkapy.config.security import SecurityConfig
from kafkapy.errors import ConfigError
from kafkapy.metadata.acl_types import Acl, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.security.authorizer import Authorizer, AuthorizerNotReadyError, authorized_operations
from kafkapy.security.standard_authorizer import MAX_REMEMBERED, MAX_REMEMBERED_NAME
from kafkapy.server.login.authorization import TRACE, LoadedAcls, new_authorizer
from tests.support.metadata_services import PROPERTIES

KEY = bytes(16)
READ_ORDERS = Acl(
    ResourceType.TOPIC, "ord", PatternType.PREFIXED, "User:alice", "*", AclOperation.READ, PermissionType.ALLOW
)
ALICE: Any = SimpleNamespace(api_key=1, principal="User:alice", client_host="0:0:0:0:0:0:0:1")


@pytest.fixture
def authorizer() -> Authorizer:
    acls = {KEY: READ_ORDERS.record(KEY)}
    return new_authorizer(SecurityConfig(super_users="User:root; User:admin"), lambda: acls)


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Any:
    def lines() -> list[tuple[int, str]]:
        return [(level, text) for name, level, text in caplog.record_tuples if name == "kafka.authorizer.logger"]

    with caplog.at_level(TRACE, "kafka.authorizer.logger"):
        yield lines


def test_lines_are_those_of_apache_kafka(authorizer: Authorizer, audit: Any) -> None:
    authorizer.authorize(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders", reference_count=2)
    authorizer.authorize(ALICE, AclOperation.WRITE, ResourceType.TOPIC, "orders")
    assert audit() == [
        (
            logging.DEBUG,
            "Principal = User:alice is Allowed operation = READ from host = 0:0:0:0:0:0:0:1 on resource = "
            "Topic:LITERAL:orders for request = Fetch with resourceRefCount = 2 based on rule MatchingAcl(acl="
            "StandardAcl[resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, principal=User:alice, host=*, "
            "operation=READ, permissionType=ALLOW])",
        ),
        (
            logging.INFO,
            "Principal = User:alice is Denied operation = WRITE from host = 0:0:0:0:0:0:0:1 on resource = "
            "Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny",
        ),
    ]


def test_what_gives_or_refuses_nothing_is_for_tracing(authorizer: Authorizer, audit: Any) -> None:
    authorizer.authorize(ALICE, AclOperation.DESCRIBE, ResourceType.TOPIC, "x", log_if_denied=False)
    bits = authorized_operations(authorizer, ALICE, ResourceType.TOPIC, "orders")
    assert bits == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert {level for level, _ in audit()} == {TRACE}
    assert authorizer.is_allowed(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert len(audit()) == 9, "a silent question writes no line"


def test_the_search_of_any_resource_is_for_tracing_if_it_finds_none(authorizer: Authorizer, audit: Any) -> None:
    """KIP-679: Kafka's authorizer asks for a made-up name first, of which the request has none."""
    assert not authorizer.authorize_by_resource_type(ALICE, AclOperation.WRITE, ResourceType.TOPIC)
    ((level, line),) = audit()
    assert level == TRACE
    assert "on resource = Topic:LITERAL:hardcode for request = Fetch with resourceRefCount = 0 based on" in line


def test_names_that_clients_make_up_take_bounded_memory(authorizer: Any) -> None:
    def decide(principal: str, name: str) -> None:
        authorizer.decide(principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, name)

    decide("User:a", "x" * (MAX_REMEMBERED_NAME + 1))
    assert len(authorizer._remembered) == 0
    for number in range(MAX_REMEMBERED + 1):
        decide("User:a", f"t{number}")
    assert len(authorizer._remembered) == 1
    for number in range(MAX_REMEMBERED + 1):
        requester: Any = SimpleNamespace(api_key=22, principal=f"User:u{number}", client_host="10.0.0.1")
        authorizer.authorize_by_resource_type(requester, AclOperation.WRITE, ResourceType.TOPIC)
    assert len(authorizer._remembered_types) == 1


def test_super_users_need_no_acl(authorizer: Authorizer, audit: Any) -> None:
    admin: Any = SimpleNamespace(api_key=42, principal="User:admin", client_host="127.0.0.1")
    assert authorizer.authorize(admin, AclOperation.DELETE, ResourceType.GROUP, "g")
    assert audit()[0][1].endswith(
        "Group:LITERAL:g for request = DeleteGroups with resourceRefCount = 1 based on rule SuperUser"
    )


def test_a_name_cannot_forge_a_line(authorizer: Authorizer, audit: Any) -> None:
    authorizer.authorize(ALICE, AclOperation.READ, ResourceType.GROUP, "g\nPrincipal = User:root is Allowed")
    ((_, line),) = audit()
    assert "\n" not in line
    assert "Group:LITERAL:g\\nPrincipal = User:root" in line


def test_until_acls_are_loaded_only_super_users_are_answered() -> None:
    authorizer = new_authorizer(SecurityConfig(super_users="User:root"), lambda: None)
    root: Any = SimpleNamespace(api_key=1, principal="User:root", client_host="127.0.0.1")
    assert authorizer.authorize(root, AclOperation.READ, ResourceType.TOPIC, "orders")
    with pytest.raises(AuthorizerNotReadyError):
        authorizer.authorize(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")


def test_a_refusal_before_the_acls_are_loaded_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    images: list[Any] = [None]
    acls = LoadedAcls(lambda: images[0])
    authorizer = new_authorizer(SecurityConfig(), acls)
    for _ in range(2):
        with pytest.raises(AuthorizerNotReadyError):
            authorizer.authorize(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "Refused a request that came before the ACLs were loaded: the nodes of a cluster have to be super users, by "
        "their principals on the controllers' listener (super.users)"
    ]
    images[0] = SimpleNamespace(acls={KEY: READ_ORDERS.record(KEY)})
    assert authorizer.authorize(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", "com.example.Mine"),
        ("principal.builder.class", "com.example.Mine"),
        ("client.quota.callback.class", "com.example.Mine"),
        ("replica.selector.class", "com.example.Mine"),
        ("super.users", "User:root;alice"),
    ],
)
def test_what_cannot_be_stops_the_start(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load({**PROPERTIES, key: value})
