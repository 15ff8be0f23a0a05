"""The controller's table of delegation tokens: lifetimes, who may change what, and the sweep."""

import hashlib
import hmac

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.delegation_tokens import (
    MAX_REMOVED_PER_DECISION,
    DelegationTokenControl,
    TokenRules,
    token_hmac,
)
from kafkapy.metadata.features import FeatureControl
from kafkapy.metadata.image import METADATA_VERSION, FeaturesImage, MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
from kafkapy.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from kafkapy.types import INT64_MAX
from tests.support.chance import SeededRandom

NOW_MS = 1_000_000
RULES = TokenRules(b"secret", max_lifetime_ms=10_000, expiry_time_ms=1_000)
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


def control(*, level: int = 30, rules: TokenRules | None = RULES, tokens=None) -> DelegationTokenControl:
    features = FeatureControl()
    features.load(MetadataImage(features=FeaturesImage({METADATA_VERSION: level})))
    return DelegationTokenControl(features, SeededRandom(), rules, tokens or {})


def create(table, *, owner=ALICE, renewers=(BOB,), max_lifetime_ms=-1, now_ms=NOW_MS):
    return table.decide_create(
        requester=ALICE, owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms, now_ms=now_ms
    )


def created(table, **how):
    decision = create(table, **how)
    for record in decision.records:
        table.replay(record)
    return decision.response


def refused(decide, **how) -> int:
    with pytest.raises(ApiError) as error:
        decide(**how)
    return error.value.code


def test_the_hmac_is_that_of_the_id_and_is_in_no_record() -> None:
    (record,), token = (decision := create(control())).records, decision.response
    assert token.hmac == hmac.new(b"secret", record.token_id.encode(), hashlib.sha512).digest()
    assert len(record.token_id) == 22
    assert token.hmac not in bytes(record.encode(0))


@pytest.mark.parametrize(
    ("requested_ms", "longest_ms", "valid_ms"),
    [(-1, 10_000, 1_000), (0, 10_000, 1_000), (500, 500, 500), (5_000, 5_000, 1_000), (1 << 62, 10_000, 1_000)],
)
def test_a_token_lives_no_longer_than_allowed(requested_ms, longest_ms, valid_ms) -> None:
    record = created(control(), max_lifetime_ms=requested_ms).record
    assert (record.max_timestamp - NOW_MS, record.expiration_timestamp - NOW_MS) == (longest_ms, valid_ms)


def test_lifetimes_that_no_timestamp_holds_end_with_the_last_one() -> None:
    table = control(rules=TokenRules(b"secret", INT64_MAX, INT64_MAX))
    token = created(table)
    assert (token.record.max_timestamp, token.record.expiration_timestamp) == (INT64_MAX, INT64_MAX)
    assert table.decide_renew(requester=ALICE, token=token.hmac, period_ms=-1, now_ms=NOW_MS).response == INT64_MAX


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "valid_until_ms"),
    [(-1, 500, 1_500), (300, 500, 800), (5_000, 500, 1_500), (0, 500, 1_500)],
)
def test_a_renewed_token_is_valid_from_now_on(period_ms, now_ms, valid_until_ms) -> None:
    table = control()
    token = created(table)
    decision = table.decide_renew(requester=BOB, token=token.hmac, period_ms=period_ms, now_ms=NOW_MS + now_ms)
    (record,) = decision.records
    assert decision.response == record.expiration_timestamp == NOW_MS + valid_until_ms
    assert table.by_id[token.record.token_id].expiration_timestamp == NOW_MS + 1_000
    table.replay(record)
    assert table.by_id[token.record.token_id] == record
    assert (record.owner, record.renewers, record.issue_timestamp) == (ALICE, [BOB], NOW_MS)


def test_none_is_renewed_beyond_its_longest_life() -> None:
    table = control()
    token = created(table, max_lifetime_ms=1_200)
    decision = table.decide_renew(requester=ALICE, token=token.hmac, period_ms=-1, now_ms=NOW_MS + 900)
    assert decision.response == NOW_MS + 1_200


def test_only_owner_and_renewers_change_a_token() -> None:
    table = control()
    token = created(table, owner=CAROL)
    how = {"requester": ALICE, "token": token.hmac, "period_ms": 1, "now_ms": NOW_MS}
    assert refused(table.decide_renew, **how) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refused(table.decide_expire, **how) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert table.decide_renew(**{**how, "requester": CAROL}).records
    assert table.decide_expire(**{**how, "requester": BOB}).records


def test_a_token_that_is_over_can_only_be_removed() -> None:
    table = control()
    token = created(table)
    how = {"requester": ALICE, "token": token.hmac, "period_ms": 1, "now_ms": NOW_MS + 1_001}
    assert refused(table.decide_renew, **how) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refused(table.decide_renew, **{**how, "requester": CAROL}) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refused(table.decide_expire, **how) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refused(table.decide_expire, **{**how, "requester": CAROL}) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    decision = table.decide_expire(**{**how, "period_ms": -1})
    table.replay_remove(*decision.records)
    assert decision.response == NOW_MS + 1_001
    assert refused(table.decide_expire, **how) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert table.by_id == {}


def test_without_a_key_or_such_records_there_are_no_tokens() -> None:
    token = created(control())
    how = {"requester": ALICE, "token": token.hmac, "period_ms": 1, "now_ms": NOW_MS}
    for table, code in (
        (control(rules=None), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (control(level=13), ErrorCode.UNSUPPORTED_VERSION),
    ):
        table.replay(token.record)
        assert refused(create, table=table) == code
        assert refused(table.decide_renew, **how) == code
        assert refused(table.decide_expire, **how) == code


def test_there_are_tokens_from_metadata_version_14_on() -> None:
    assert created(control(level=14)).record.owner == ALICE


def test_a_token_is_valid_in_its_last_millisecond() -> None:
    table = control()
    for lifetime_ms in (-1, 1_000):  # one ends by its validity, the other by its longest life as well
        token = created(table, max_lifetime_ms=lifetime_ms)
        how = {"requester": ALICE, "token": token.hmac, "period_ms": 1, "now_ms": NOW_MS + 1_000}
        assert table.decide_renew(**how).records
        assert table.decide_expire(**how).records
    assert table.decide_remove_expired(NOW_MS + 1_000).records == []
    assert len(table.decide_remove_expired(NOW_MS + 1_001).records) == 2


@pytest.mark.parametrize("period_ms", [0, 1])
def test_only_a_negative_period_removes_a_token(period_ms) -> None:
    table = control()
    token = created(table)
    how = {"requester": ALICE, "token": token.hmac, "now_ms": NOW_MS}
    (record,) = table.decide_expire(**how, period_ms=period_ms).records
    assert record.expiration_timestamp == NOW_MS + period_ms
    (record,) = table.decide_expire(**how, period_ms=-1).records
    assert isinstance(record, RemoveDelegationTokenRecord)


def test_one_millisecond_is_a_period() -> None:
    table = control()
    token = created(table, max_lifetime_ms=1)
    assert token.record.max_timestamp == NOW_MS + 1
    token = created(table)
    how = {"requester": ALICE, "token": token.hmac, "now_ms": NOW_MS}
    assert table.decide_renew(**how, period_ms=1).response == NOW_MS + 1


def test_tokens_of_the_metadata_stay_and_go_without_a_key() -> None:
    made = control()
    first, second = created(made).record, created(made).record
    table = control(rules=None, tokens={first.token_id: first})
    table.replay(second)
    assert table.by_id == {first.token_id: first, second.token_id: second}
    table.replay_remove(RemoveDelegationTokenRecord(token_id=first.token_id))
    assert table.by_id == {second.token_id: second}


def test_renewers_are_users() -> None:
    assert refused(create, table=control(), renewers=("Group:g",)) == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_what_the_image_had_is_found_by_its_hmac() -> None:
    record = created(control()).record
    table = control(tokens={record.token_id: record})
    how = {"requester": ALICE, "period_ms": 1, "now_ms": NOW_MS}
    assert table.decide_renew(token=token_hmac(b"secret", record.token_id), **how).records
    assert refused(table.decide_renew, token=b"", **how) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_the_sweep_removes_what_is_over_a_thousand_at_a_time() -> None:
    tokens = {
        str(number): DelegationTokenRecord(
            token_id=str(number), expiration_timestamp=NOW_MS - 1, max_timestamp=NOW_MS + 1
        )
        for number in range(MAX_REMOVED_PER_DECISION + 1)
    }
    table = control(tokens=tokens)
    left = created(table).record.token_id
    decision = table.decide_remove_expired(NOW_MS)
    assert (len(decision.records), decision.response) == (MAX_REMOVED_PER_DECISION, True)
    for record in decision.records:
        table.replay_remove(record)
    decision = table.decide_remove_expired(NOW_MS)
    assert (len(decision.records), decision.response) == (1, False)
    table.replay_remove(*decision.records)
    assert set(table.by_id) == {left}
    assert not table.decide_remove_expired(NOW_MS).records


def test_no_secret_is_printed() -> None:
    assert "secret" not in repr(RULES)
