"""Client quotas through the admin's APIs: what is set, described by filters, refused and removed."""

from collections.abc import Iterator

import pytest

from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from tests.support.client_requests import until
from tests.support.quotas import remove_quotas
from tests.support.wire import WireClient

INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
RATE = "producer_byte_rate"

Names = dict[str, str | None]
Component = tuple[str, int, str | None]


@pytest.fixture(scope="module", autouse=True)
def no_quotas_after(bootstrap: str) -> Iterator[None]:
    yield
    remove_quotas(bootstrap)


def key(names: Names) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(names.items()))


def entry(names: Names, **changes: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in names.items()],
        ops=[OpData(key=name, value=value or 0.0, remove=value is None) for name, value in changes.items()],
    )


def alter(client: WireClient, *entries: EntryData, version: int = 1, validate_only: bool = False):
    """Return error code and message by entity."""
    response = client.call(AlterClientQuotasRequest(list(entries), validate_only=validate_only), version)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): (
            each.error_code,
            each.error_message,
        )
        for each in response.entries
    }


def described(client: WireClient, *components: Component, version: int = 1, is_strict: bool = False):
    """Return error code, message and the quotas by entity."""
    request = DescribeClientQuotasRequest(
        [ComponentData(kind, match_type=how, match=match) for kind, how, match in components], strict=is_strict
    )
    response = client.call(request, version)
    if response.entries is None:
        return response.error_code, response.error_message, None
    quotas = {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }
    return response.error_code, response.error_message, quotas


def quotas(client: WireClient, *components: Component, **changes):
    code, message, found = described(client, *components, **changes)
    assert (code, message) == (0, "")
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_set_changed_and_removed(client, version) -> None:
    names: Names = {"user": f"alice-{version}"}
    wanted = ("user", EXACT, f"alice-{version}")
    assert alter(client, entry(names, **{RATE: 1000.0}), version=version) == {key(names): (0, None)}
    until(lambda: quotas(client, wanted, version=version) == {key(names): {RATE: 1000.0}})
    alter(client, entry(names, **{RATE: 2000.0, "request_percentage": 12.5}), version=version)
    both = {RATE: 2000.0, "request_percentage": 12.5}
    until(lambda: quotas(client, wanted, version=version) == {key(names): both})
    alter(client, entry(names, **{RATE: None, "request_percentage": None}), version=version)
    until(lambda: quotas(client, wanted, version=version) == {})


def test_filters_select_entities(client) -> None:
    user: Names = {"user": "f"}
    both: Names = {"user": "f", "client-id": "f"}
    default: Names = {"user": "f", "client-id": None}
    alter(client, *(entry(names, **{RATE: 1.0}) for names in (user, both, default)))
    wanted = ("user", EXACT, "f")
    until(lambda: quotas(client, wanted).keys() == {key(user), key(both), key(default)})
    assert quotas(client, wanted, is_strict=True).keys() == {key(user)}
    assert quotas(client, wanted, ("client-id", DEFAULT, None)).keys() == {key(default)}
    specified = quotas(client, wanted, ("client-id", SPECIFIED, None), is_strict=True)
    assert specified.keys() == {key(both), key(default)}
    assert quotas(client, ("user", DEFAULT, None)) == {}
    assert {key(user), key(both), key(default)} <= quotas(client).keys()
    assert quotas(client, is_strict=True) == {}


def test_addresses_have_quotas_of_their_own(client) -> None:
    names: Names = {"ip": "10.1.2.3"}
    assert alter(client, entry(names, connection_creation_rate=7.0)) == {key(names): (0, None)}
    until(lambda: quotas(client, ("ip", SPECIFIED, None)) == {key(names): {"connection_creation_rate": 7.0}})


def test_what_cannot_be_is_refused_for_its_entity_alone(client) -> None:
    cases = [
        (entry({"user": "good"}, **{RATE: 5.0}), None),
        (entry({"foo": "bar"}, **{RATE: 5.0}), "Unhandled client quota entity type: foo"),
        (entry({}, **{RATE: 5.0}), "Invalid empty client quota entity"),
        (entry({"user": ""}, **{RATE: 5.0}), "Empty user not supported"),
        (
            entry({"user": "u", "ip": "1.2.3.4"}, **{RATE: 5.0}),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (entry({"ip": "a b"}, connection_creation_rate=5.0), "a b is not a valid IP or resolvable host."),
        (entry({"user": "key"}, none=5.0), "Invalid configuration key none"),
        (entry({"user": "zero"}, **{RATE: 0.0}), "Quota producer_byte_rate must be greater than 0"),
        (entry({"user": "part"}, **{RATE: 0.5}), "producer_byte_rate cannot be a fractional value."),
        (
            entry({"user": "long"}, **{RATE: 1e30}),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            entry({"ip": "1.2.3.4"}, connection_creation_rate=1e10),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ]
    expected = {
        key({part.entity_type: part.entity_name for part in each.entity}): (INVALID_REQUEST if message else 0, message)
        for each, message in cases
    }
    assert alter(client, *(each for each, _ in cases)) == expected
    until(lambda: key({"user": "good"}) in quotas(client))
    assert not {key({"user": "key"}), key({"user": "part"}), key({"ip": "1.2.3.4"})} & quotas(client).keys()


def test_of_an_entity_named_twice_the_first_alteration_counts(client) -> None:
    names: Names = {"user": "twice", "client-id": None}
    reported = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=twice})"
    responses = alter(client, entry(names, **{RATE: 1.0}), entry(names, **{RATE: 2.0}))
    assert responses == {key(names): (INVALID_REQUEST, reported)}
    until(lambda: quotas(client, ("user", EXACT, "twice")) == {key(names): {RATE: 1.0}})


def test_a_trial_changes_nothing(client) -> None:
    trial, marker = {"user": "trial"}, {"user": "marker"}
    assert alter(client, entry(trial, **{RATE: 1.0}), validate_only=True) == {key(trial): (0, None)}
    alter(client, entry(marker, **{RATE: 1.0}))
    until(lambda: key(marker) in quotas(client))
    assert key(trial) not in quotas(client)


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", EXACT, "a")], INVALID_REQUEST, "Invalid empty entity type."),
        ([("foo", EXACT, "a")], UNSUPPORTED_VERSION, "Unsupported entity type foo"),
        (
            [("user", EXACT, "a"), ("user", SPECIFIED, None)],
            INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", EXACT, None)],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "a")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "a")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], INVALID_REQUEST, "Unknown match type 3"),
        (
            [("user", EXACT, "a"), ("ip", SPECIFIED, None)],
            INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_filter_that_cannot_be(client, components, code, message) -> None:
    assert described(client, *components) == (code, message, None)
