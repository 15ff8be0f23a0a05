"""Which quota a client has, and with whom it shares it: the cases of Apache Kafka's ClientQuotaManagerTest."""

import pytest

from kafkapy.metadata.image import QuotaEntity
from kafkapy.security.quotas import Bucket, ClientQuota, ClientQuotas
from kafkapy.security.rate import EXPIRATION_MS, MAX_RATES

LEVELS: list[dict[str, str | None]] = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
"""The most specific first."""
BUCKETS = [*[Bucket("u", "c")] * 2, Bucket("u", ""), *[Bucket("u", "c")] * 2, Bucket("u", ""), *[Bucket("", "c")] * 2]


def new_quota(*limits: tuple[dict[str, str | None], float]) -> ClientQuota:
    quota = ClientQuota(11, 1000)
    for names, limit in limits:
        quota.set_limit(names, limit)
    return quota


@pytest.mark.parametrize("first", range(8))
def test_the_most_specific_quota_applies(first) -> None:
    quota = new_quota(*((names, 10.0 * (level + 1)) for level, names in enumerate(LEVELS) if level >= first))
    bucket = quota.bucket("u", "c")
    assert bucket == BUCKETS[first]
    assert quota.limit(bucket) == 10.0 * (first + 1)


def test_quotas_of_others_do_not_apply() -> None:
    quota = new_quota(({"user": "v"}, 1.0), ({"user": "u", "client-id": "d"}, 1.0), ({"client-id": "d"}, 1.0))
    assert quota.limit(quota.bucket("u", "c")) is None
    assert quota.record("u", "c", 1e9, now_ms=0) == 0
    assert quota.bucket_count == 0


def test_a_client_without_a_client_id_has_the_quotas_of_its_user_alone() -> None:
    quota = new_quota(({"user": "u", "client-id": None}, 1.0), ({"client-id": None}, 2.0))
    assert quota.limit(quota.bucket("u", "")) is None
    quota.set_limit({"user": None}, 3.0)
    assert quota.limit(quota.bucket("u", "")) == 3.0


def test_clients_of_a_user_share_the_users_quota() -> None:
    quota = new_quota(({"user": "u"}, 1000.0))
    assert quota.record("u", "a", 10_000, now_ms=0) == 0
    assert quota.record("u", "b", 1000, now_ms=0) == 1000
    assert quota.record("v", "a", 1e9, now_ms=0) == 0


def test_a_default_is_a_limit_for_each() -> None:
    quota = new_quota(({"user": None}, 1000.0))
    assert [quota.record(user, "c", 10_000, now_ms=0) for user in ("u", "v")] == [0, 0]
    assert quota.record("u", "c", 500, now_ms=0) == 500


def test_a_quota_changes_while_a_client_is_measured() -> None:
    quota = new_quota(({"client-id": "c"}, 1000.0))
    assert quota.record("u", "c", 10_000, now_ms=0) == 0
    quota.set_limit({"client-id": "c"}, 500.0)
    assert quota.record("u", "c", 0, now_ms=0) == 10_000
    quota.set_limit({"client-id": "c"}, None)
    assert quota.record("u", "c", 1e9, now_ms=0) == 0
    assert quota.is_empty


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_throttles_nobody(limit) -> None:
    quota = new_quota(({"client-id": "c"}, limit))
    assert quota.is_empty
    assert quota.record("u", "c", 1e9, now_ms=0) == 0


def test_what_fits_into_all_windows() -> None:
    quota = new_quota(({"client-id": "c"}, 1000.0))
    assert quota.most_in_windows("u", "c") == 10_000.0
    assert quota.most_in_windows("u", "d") is None


def test_a_bucket_is_forgotten_after_an_hour_of_silence() -> None:
    quota = new_quota(({"client-id": None}, 1000.0))
    for number in range(5):
        quota.record("u", f"c{number}", 1, now_ms=number)
    quota.record("u", "c4", 1, now_ms=EXPIRATION_MS)
    quota.record("u", "new", 1, now_ms=EXPIRATION_MS + 3)
    assert quota.bucket_count == 3, "c3 is an hour old, not more; c4 was used since"


def test_buckets_are_bounded() -> None:
    quota = new_quota(({"client-id": None}, 1000.0))
    for number in range(MAX_RATES + 5):
        quota.record("u", f"c{number}", 1, now_ms=0)
    assert quota.bucket_count == MAX_RATES


def test_each_key_of_an_entity_is_measured_for_itself() -> None:
    quotas = ClientQuotas(11, 1000)
    entity: QuotaEntity = (("client-id", "c"),)
    quotas.set_entity(entity, {"producer_byte_rate": 10.0, "request_percentage": 1.0})
    assert quotas.produce.limit(quotas.produce.bucket("u", "c")) == 10.0
    assert quotas.fetch.is_empty
    quotas.set_entity(entity, {"consumer_byte_rate": 20.0})
    assert quotas.produce.is_empty
    assert not quotas.is_empty
    quotas.set_entity(entity, None)
    assert quotas.is_empty


def test_quotas_of_addresses_are_no_clients_quotas() -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set_entity((("ip", "10.0.0.1"),), {"connection_creation_rate": 10.0})
    assert quotas.is_empty
