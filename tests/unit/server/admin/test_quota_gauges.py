"""Quotas as /metrics tells them."""

from kafkapy.security.quotas import MAX_SHOWN, ClientQuotas
from kafkapy.security.rate import SAMPLE_MS, RecentMean
from kafkapy.server.admin.metrics import exposition
from kafkapy.server.admin.quota_gauges import quota_gauges


def shown(quotas: ClientQuotas | None, now_ms: int) -> list[str]:
    text = exposition(quota_gauges(quotas, now_ms), "")[1].decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_what_is_measured_of_a_client_has_kafkas_names() -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set_entity((("client-id", "c"),), {"producer_byte_rate": 10.0, "consumer_byte_rate": 10.0})
    quotas.set_entity((("user", "u"),), {"request_percentage": 5.0, "controller_mutation_rate": 1.0})
    quotas.produce.record("u", "c", 50, now_ms=0)
    quotas.fetch.record("u", "c", 200, now_ms=0)
    quotas.request.record("u", "c", 20.0, now_ms=0)
    quotas.mutation.charge("u", "c", 4, now_ms=0)
    assert shown(quotas, now_ms=0) == [
        'kafka_server_produce_byte_rate{client_id="c",user=""} 5.0',
        'kafka_server_fetch_byte_rate{client_id="c",user=""} 20.0',
        'kafka_server_fetch_throttle_time{client_id="c",user=""} 10000.0',
        'kafka_server_request_request_time{client_id="",user="u"} 2.0',
        'kafka_server_controllermutation_tokens{client_id="",user="u"} 7.0',
    ]


def test_without_quotas_no_throttle_is_returned() -> None:
    assert shown(None, now_ms=0) == []


def test_of_very_many_clients_the_last_are_shown() -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set_entity((("client-id", None),), {"producer_byte_rate": 10.0})
    for number in range(MAX_SHOWN + 1):
        quotas.produce.record("u", f"c{number}", 1, now_ms=0)
    lines = shown(quotas, now_ms=0)
    assert len(lines) == MAX_SHOWN
    assert not any('client_id="c0"' in line for line in lines)


def test_a_mean_is_of_the_last_minute() -> None:
    mean = RecentMean()
    assert mean.mean(0) is None
    mean.record(100, now_ms=0)
    mean.record(300, now_ms=SAMPLE_MS - 1)
    assert mean.mean(SAMPLE_MS) == 200
    mean.record(50, now_ms=SAMPLE_MS)
    assert mean.mean(SAMPLE_MS) == 150
    assert mean.mean(2 * SAMPLE_MS) == 50
    assert mean.mean(3 * SAMPLE_MS) is None
