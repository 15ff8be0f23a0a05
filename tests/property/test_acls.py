"""After any additions, removals and snapshots, every decision is what the list of ACLs says by definition.

The model looks at each ACL in turn and knows no index, no memory and no order of names. That no ACL that denies is ever
lost (CVE-2024-27309) follows. Names that Apache Kafka 4.3.1 cannot be asked about (below `*`) are among them here.
"""

import random
from ipaddress import ip_address, ip_network
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.metadata.acl_types import Acl, AclFilter, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.metadata.acls import AclControl, find_acls
from kafkapy.metadata.features import MV_4_4_IV1, FeatureControl
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.security.acl_index import Acls
from kafkapy.security.standard_authorizer import StandardAuthorizer
from tests.support.chance import SeededRandom

NAMES = ("a", "ab", "abc", "#", "#a", "#ab", "*", "*a", "b", "")
ASKED_NAMES = ("a", "ab", "abc", "abcd", "#", "#a", "#abc", "#b", "*", "*a", "b", "zz")
PRINCIPALS = ("User:a", "User:b", "User:*", "Other:a")
HOSTS = ("10.1.2.3", "10.2.0.1", "10.1.0.0/16", "*")
NETWORK = ip_network("10.1.0.0/16")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
IMPLIED = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class Silence:
    def is_enabled(self, *, is_allowed: bool, is_worth_telling: bool) -> bool:
        return False

    def write(self, question: Any, *, is_worth_telling: bool) -> None:
        raise AssertionError("a line that nobody wants")


def is_about(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def is_of_host(acl: Acl, host: str) -> bool:
    return acl.host in ("*", host) or (acl.host == str(NETWORK) and ip_address(host) in NETWORK)


def concerns(acl: Acl, principal: str, host: str, operation: int) -> bool:
    if acl.principal not in ("User:*", principal) or not is_of_host(acl, host):
        return False
    if acl.operation in (AclOperation.ALL, operation):
        return True
    is_allow = acl.permission_type == PermissionType.ALLOW
    return is_allow and acl.operation in IMPLIED.get(AclOperation(operation), ())


def model(acls: list[Acl], principal: str, host: str, operation: int, resource_type: int, name: str) -> bool | None:
    """Return what the ACLs say, None where there is none on the resource."""
    about = [acl for acl in acls if is_about(acl, resource_type, name)]
    verdicts = {acl.permission_type for acl in about if concerns(acl, principal, host, operation)}
    if not about:
        return None
    return PermissionType.DENY not in verdicts and PermissionType.ALLOW in verdicts


def model_of_any(acls: list[Acl], principal: str, host: str, operation: int, resource_type: int) -> bool:
    """KIP-679, by its words: an ALLOW that no DENY dominates."""
    mine = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and acl.principal in ("User:*", principal)
        and is_of_host(acl, host)
        and acl.operation in (AclOperation.ALL, operation)
    ]
    denying = [acl for acl in mine if acl.permission_type == PermissionType.DENY]

    def is_dominated(allow: Acl) -> bool:
        return any(
            allow.resource_name.startswith(deny.resource_name)
            if deny.pattern_type == PatternType.PREFIXED
            else (deny.resource_name == allow.resource_name and allow.pattern_type == PatternType.LITERAL)
            for deny in denying
        )

    wildcard = (PatternType.LITERAL, "*")
    if wildcard in {(acl.pattern_type, acl.resource_name) for acl in denying}:
        return False
    allowing = [acl for acl in mine if acl.permission_type == PermissionType.ALLOW]
    return any((acl.pattern_type, acl.resource_name) == wildcard or not is_dominated(acl) for acl in allowing)


class World:
    """A controller's table, and the authorizer on the images that its records make."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        features = FeatureControl()
        features.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=MV_4_4_IV1))
        self.control = AclControl(features, SeededRandom(seed))
        self.acls: Acls = {}
        self.default = seed % 2 == 0
        self.restart()

    def restart(self) -> None:
        self.authorizer = StandardAuthorizer(
            lambda: self.acls,
            super_users=frozenset(("User:root",)),
            allow_everyone_if_no_acl_found=self.default,
            audit_log=Silence(),
        )

    @property
    def model(self) -> list[Acl]:
        return [Acl.of(record) for record in self.acls.values()]

    def step(self) -> None:
        kind = self.dice.choice(("create", "create", "create", "delete", "snapshot", "restart"))
        if kind == "create":
            self.create([self.random_acl() for _ in range(self.dice.randrange(4))])
        elif kind == "delete":
            self.delete([self.random_filter() for _ in range(self.dice.randrange(3))])
        elif kind == "snapshot":
            self.acls = dict(reversed(self.acls.items()))
            self.control.load(SimpleNamespace(acls=self.acls))  # type: ignore[arg-type]
        else:
            self.restart()

    def create(self, acls: list[Acl]) -> None:
        decision = self.control.decide_create(acls)
        assert decision.is_atomic
        assert [error is None for error in decision.response] == [bool(acl.resource_name) for acl in acls]
        for record in decision.records:
            assert isinstance(record, AccessControlEntryRecord)
            self.control.replay(record)
        self.acls = {**self.acls, **{record.id: record for record in decision.records}}
        assert {acl for acl in acls if acl.resource_name} <= set(self.model)
        assert len(set(self.model)) == len(self.model), "no ACL is there twice"

    def delete(self, filters: list[AclFilter]) -> None:
        before = self.model
        decision = self.control.decide_delete([find_acls(self.acls, requested) for requested in filters])
        assert decision.is_atomic
        for requested, deleted in zip(filters, decision.response, strict=True):
            assert sorted(deleted) == sorted(acl for acl in before if matches(requested, acl))
        for record in decision.records:
            self.control.replay_remove(record)
        gone = {record.id for record in decision.records}
        self.acls = {key: record for key, record in self.acls.items() if key not in gone}
        assert not any(matches(requested, acl) for requested in filters for acl in self.model)

    def random_acl(self) -> Acl:
        choice = self.dice.choice
        pattern = choice((PatternType.LITERAL, PatternType.PREFIXED))
        permission = choice((PermissionType.DENY, PermissionType.ALLOW, PermissionType.ALLOW))
        return Acl(
            choice(TYPES), choice(NAMES), pattern, choice(PRINCIPALS), choice(HOSTS), choice(OPERATIONS), permission
        )

    def random_filter(self) -> AclFilter:
        if self.dice.random() < 0.3 and self.acls:
            return AclFilter(*self.dice.choice(self.model))
        choice = self.dice.choice
        return AclFilter(
            choice((ResourceType.ANY, *TYPES)),
            choice((None, *ASKED_NAMES)),
            choice((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
            choice((None, *PRINCIPALS)),
            choice((None, *HOSTS)),
            choice((AclOperation.ANY, *OPERATIONS)),
            choice((PermissionType.ANY, PermissionType.DENY, PermissionType.ALLOW)),
        )

    def check(self) -> None:
        choice = self.dice.choice
        who = (
            choice(("User:a", "User:b", "User:c", "Other:a", "User:root")),
            choice(("10.1.2.3", "10.2.0.1", "10.1.0.9")),
        )
        operation, resource_type, name = choice(OPERATIONS[1:]), choice(TYPES), choice(ASKED_NAMES)
        is_allowed = self.authorizer.decide(*who, operation, resource_type, name).is_allowed
        expected = model(self.model, *who, operation, resource_type, name)
        is_super_user = who[0] == "User:root"
        assert is_allowed == (is_super_user or (self.default if expected is None else expected))
        requester: Any = SimpleNamespace(api_key=0, principal=who[0], client_host=who[1])
        may_any = self.authorizer.authorize_by_resource_type(requester, operation, resource_type)
        hardcode = self.authorizer.decide(*who, operation, resource_type, "hardcode").is_allowed
        assert may_any == (hardcode or model_of_any(self.model, *who, operation, resource_type))


def matches(requested: AclFilter, acl: Acl) -> bool:
    """KIP-290, by its words."""
    fields = zip(requested[3:], acl[3:], strict=True)
    if any(wanted not in (None, value) and wanted != 1 for wanted, value in fields):
        return False
    if requested.resource_type not in (ResourceType.ANY, acl.resource_type):
        return False
    if requested.pattern_type == PatternType.MATCH:
        return requested.resource_name is None or is_about(acl, acl.resource_type, requested.resource_name)
    is_kind = requested.pattern_type in (PatternType.ANY, acl.pattern_type)
    return is_kind and requested.resource_name in (None, acl.resource_name)


@pytest.mark.parametrize("seed", range(8))
def test_decisions_are_the_models(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
        for _ in range(15):
            world.check()
