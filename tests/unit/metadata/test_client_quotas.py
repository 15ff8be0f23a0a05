"""AlterClientQuotas as the controller decides it: the cases of Apache Kafka's ClientQuotaControlManagerTest."""

import math

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.client_quotas import QuotaFilter
from kafkapy.metadata.snapshot import image_records
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord
from kafkapy.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from tests.support.controllers import Cluster, end_of

Names = dict[str, str | None]
USER_1: Names = {"user": "user-1"}
IP_1: Names = {"ip": "1.2.3.4"}


def entry(names: Names, *changes: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in names.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes],
    )


def alter(cluster: Cluster, *entries: EntryData, validate_only: bool = False) -> list[str | None]:
    """Alter; return each entity's message."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    results = cluster.commit(cluster.controller.client_quotas.decide_alter(request))
    assert all(each.error is None or each.error.code == ErrorCode.INVALID_REQUEST for each in results)
    assert cluster.controller.client_quotas.by_entity == cluster.image.client_quotas
    return [each.error and each.error.message for each in results]


def quotas(cluster: Cluster, names: Names) -> dict[str, float] | None:
    found = cluster.image.client_quotas.get(tuple(sorted(names.items())))
    return None if found is None else dict(found)


RATE, PERCENTAGE = "producer_byte_rate", "request_percentage"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"foo": "bar"}, "Unhandled client quota entity type: foo"),
        ({"": "null"}, "Unhandled client quota entity type: "),
        ({"user": "user-1", "foo": "bar"}, "Unhandled client quota entity type: foo"),
        ({"foo": "bar", "ip": "1.2.3.4"}, "Unhandled client quota entity type: foo"),
        ({"user": "user-1", "ip": "1.2.3.4"}, "Invalid quota entity combination, IP entity should"),
        ({"client-id": "user-1", "ip": "1.2.3.4"}, "Invalid quota entity combination, IP entity should"),
        ({"ip": "not an address"}, "not an address is not a valid IP or resolvable host."),
        ({"user": ""}, "Empty user not supported"),
        ({}, "Invalid empty client quota entity"),
    ],
)
def test_entity_that_cannot_be_is_refused(names, message) -> None:
    (reported,) = alter(Cluster(), entry(names, (RATE, 10000.0)))
    assert reported is not None
    assert reported.startswith(message)


@pytest.mark.parametrize(
    ("names", "key", "value", "message"),
    [
        (USER_1, "not.a.quota.key", 1.0, "Invalid configuration key not.a.quota.key"),
        (USER_1, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (IP_1, RATE, 1.0, "Invalid configuration key producer_byte_rate"),
        (USER_1, RATE, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (USER_1, PERCENTAGE, math.nan, "Quota request_percentage must be greater than 0"),
        (USER_1, PERCENTAGE, -1.0, "Quota request_percentage must be greater than 0"),
        (USER_1, RATE, 10.5, "producer_byte_rate cannot be a fractional value."),
        (USER_1, RATE, 10.0001, "producer_byte_rate cannot be a fractional value."),
        (USER_1, RATE, 2.0**64, "Proposed value for producer_byte_rate is too large for a LONG."),
        (USER_1, RATE, math.inf, "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            IP_1,
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (IP_1, "connection_creation_rate", 0.3, "connection_creation_rate cannot be a fractional value."),
    ],
)
def test_quota_that_cannot_be_is_refused(names, key, value, message) -> None:
    assert alter(Cluster(), entry(names, (key, value))) == [message]


@pytest.mark.parametrize(
    ("names", "key", "value"),
    [
        (USER_1, RATE, 2.0**63),
        (USER_1, RATE, 10.0000001),
        (USER_1, PERCENTAGE, 0.5),
        (USER_1, "controller_mutation_rate", 1.5),
        (IP_1, "connection_creation_rate", 2.0**31 - 1),
        ({"ip": "::1"}, "connection_creation_rate", 5.0),
        ({"ip": None}, "connection_creation_rate", 5.0),
        ({"user": None, "client-id": None}, RATE, 5.0),
    ],
)
def test_quota_is_set(names, key, value) -> None:
    cluster = Cluster()
    assert alter(cluster, entry(names, (key, value))) == [None]
    assert quotas(cluster, names) == {key: value}


def test_one_wrong_key_refuses_all_of_its_entity_and_no_other() -> None:
    cluster = Cluster()
    wrong = entry(USER_1, (RATE, 99.0), ("not.a.quota.key", 1.0))
    assert alter(cluster, wrong, entry(IP_1, ("connection_creation_rate", 9.0))) == [
        "Invalid configuration key not.a.quota.key",
        None,
    ]
    assert quotas(cluster, USER_1) is None
    assert quotas(cluster, IP_1) == {"connection_creation_rate": 9.0}


def test_alter_and_remove() -> None:
    cluster = Cluster()
    alter(cluster, entry(USER_1, (RATE, 10000.0)))
    assert quotas(cluster, USER_1) == {RATE: 10000.0}
    alter(cluster, entry(USER_1, (RATE, 10001.0), ("consumer_byte_rate", 20000.0)))
    assert quotas(cluster, USER_1) == {RATE: 10001.0, "consumer_byte_rate": 20000.0}
    alter(cluster, entry(USER_1, (RATE, None)))
    assert quotas(cluster, USER_1) == {"consumer_byte_rate": 20000.0}
    alter(cluster, entry(USER_1, (PERCENTAGE, None)))
    assert quotas(cluster, USER_1) == {"consumer_byte_rate": 20000.0}
    alter(cluster, entry(USER_1, ("consumer_byte_rate", None)))
    assert quotas(cluster, USER_1) is None


def test_what_changes_nothing_has_no_record() -> None:
    cluster = Cluster()
    alter(cluster, entry(USER_1, (RATE, 1.0)))
    request = AlterClientQuotasRequest([entry(USER_1, (RATE, 1.0)), entry(IP_1, ("connection_creation_rate", None))])
    assert end_of(cluster.controller.client_quotas.decide_alter(request)).records == []


def test_a_trial_has_results_and_no_record() -> None:
    cluster = Cluster()
    assert alter(cluster, entry(USER_1, (RATE, 1.0)), entry({}), validate_only=True) == [
        None,
        "Invalid empty client quota entity",
    ]
    assert quotas(cluster, USER_1) is None


def test_of_an_entity_named_twice_the_first_alteration_counts() -> None:
    cluster = Cluster()
    reported = alter(cluster, entry(USER_1, (RATE, 1.0)), entry(USER_1, (RATE, 2.0)))
    assert reported == ["Ignoring duplicate entity ClientQuotaEntity(entries={user=user-1})"]
    assert quotas(cluster, USER_1) == {RATE: 1.0}


def test_a_key_named_twice_refuses_its_entity() -> None:
    cluster = Cluster()
    names: Names = {"user": None, "client-id": "c"}
    reported = alter(cluster, entry(names, (RATE, 1.0), (RATE, 2.0)))
    assert reported == ["Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=null})"]
    assert quotas(cluster, names) is None


def test_a_request_with_too_many_records_is_refused() -> None:
    entries = [entry({"user": f"u{number}"}, (RATE, 1.0)) for number in range(10_001)]
    with pytest.raises(ApiError) as raised:
        end_of(Cluster().controller.client_quotas.decide_alter(AlterClientQuotasRequest(entries)))
    assert raised.value.code == ErrorCode.POLICY_VIOLATION


def test_a_snapshot_and_a_new_controller_hold_the_quotas() -> None:
    cluster = Cluster()
    alter(cluster, entry({"user": None, "client-id": "c"}, (RATE, 1.0), (PERCENTAGE, 2.5)))
    records = [each for each in image_records(cluster.image) if isinstance(each, ClientQuotaRecord)]
    assert [(each.key, each.value, each.remove) for each in records] == [(RATE, 1.0, False), (PERCENTAGE, 2.5, False)]
    assert [(part.entity_type, part.entity_name) for part in records[0].entity] == [("client-id", "c"), ("user", None)]
    successor = Cluster().controller
    successor.load(cluster.image, next_offset=9, now_ms=0)
    assert successor.client_quotas.by_entity == cluster.image.client_quotas


EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER_A, CLIENT_A = ("user", "a"), ("client-id", "a")


@pytest.mark.parametrize(
    ("components", "is_strict", "matched"),
    [
        ([], False, "a:- a:a -:a *:- *:a"),
        ([], True, ""),
        ([("user", EXACT, "a")], False, "a:- a:a"),
        ([("user", EXACT, "a")], True, "a:-"),
        ([("user", DEFAULT, None)], False, "*:- *:a"),
        ([("user", SPECIFIED, None)], False, "a:- a:a *:- *:a"),
        ([("user", SPECIFIED, None)], True, "a:- *:-"),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "a")], True, "a:a *:a"),
        ([("client-id", EXACT, "b")], False, ""),
    ],
)
def test_filter(components, is_strict, matched) -> None:
    wanted = QuotaFilter(request(*components, is_strict=is_strict))
    entities = {
        "a:-": (USER_A,),
        "a:a": (CLIENT_A, USER_A),
        "-:a": (CLIENT_A,),
        "*:-": (("user", None),),
        "*:a": (CLIENT_A, ("user", None)),
    }
    assert " ".join(name for name, entity in entities.items() if wanted.matches(entity)) == matched


def request(*components: tuple[str, int, str | None], is_strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        [ComponentData(kind, match_type=how, match=match) for kind, how, match in components], strict=is_strict
    )
