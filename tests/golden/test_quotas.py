"""Throttle times against those of Apache Kafka's own quota managers (tools/record_quotas.py tells the format)."""

import gzip
from collections import Counter
from pathlib import Path

from kafkapy.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from kafkapy.reactor.ip_rates import IpRates
from kafkapy.security.quotas import ClientQuotas

GOLDEN = Path(__file__).parent / "quotas.txt.gz"
KEYS = {"p": PRODUCER_BYTE_RATE, "f": CONSUMER_BYTE_RATE, "r": REQUEST_PERCENTAGE, "m": CONTROLLER_MUTATION_RATE}


class Replay:
    """Takes the steps of a script and tells the throttle times."""

    def __init__(self, window_num: int, window_ms: int) -> None:
        self._quotas = ClientQuotas(
            window_num, window_ms, mutation_window_count=window_num, mutation_window_ms=window_ms
        )
        self._ips = IpRates(window_num, window_ms)
        self._by_entity: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}

    def set_quota(self, user: str, client_id: str, letter: str, value: str) -> None:
        names = {"client-id": client_id, "user": user}
        entity = tuple((type_, None if name == "*" else name) for type_, name in names.items() if name != "-")
        quotas = self._by_entity.setdefault(entity, {})
        if value == "-":
            quotas.pop(KEYS[letter], None)
        else:
            quotas[KEYS[letter]] = float(value)
        self._quotas.set_entity(entity, quotas)

    def set_rate(self, ip: str, value: str) -> None:
        self._ips.set_limit(None if ip == "*" else ip, None if value == "-" else float(value))

    def request(self, kind: str, time_ms: str, *fields: str) -> str:
        now_ms = int(time_ms)
        if kind == "i":
            return str(self._ips.record(fields[0], now_ms))
        user, client_id = fields[0], fields[1].replace("-", "")
        if kind == "w":
            most = self._quotas.fetch.max_in_windows(user, client_id)
            return "-" if most is None else str(most)
        return self._throttle(kind, user, client_id, float(fields[2]), now_ms)

    def _throttle(self, kind: str, user: str, client_id: str, value: float, now_ms: int) -> str:
        quotas = self._quotas
        if kind == "m":
            return str(quotas.mutation.charge(user, client_id, int(value), now_ms))
        if kind == "s":
            refused_ms = quotas.mutation.charge_strictly(user, client_id, int(value), now_ms)
            return "0" if refused_ms is None else f"X {refused_ms}"
        quota = {"p": quotas.produce, "f": quotas.fetch, "r": quotas.request}[kind]
        throttle_ms = quota.record(user, client_id, value, now_ms)
        if kind == "f" and throttle_ms > 0:
            quota.unrecord(user, client_id, value, now_ms)
        return str(throttle_ms)


def test_clients_are_throttled_as_by_apache_kafka() -> None:
    replay = Replay(1, 1)
    throttled: Counter[str] = Counter()
    for number, line in enumerate(gzip.decompress(GOLDEN.read_bytes()).decode().splitlines(), 1):
        step, _, expected = line.partition("\t")
        kind, *fields = step.split(" ")
        if kind == "#":
            replay = Replay(int(fields[0]), int(fields[1]) * 1000)
        elif kind == "=":
            (replay.set_rate if len(fields) == 2 else replay.set_quota)(*fields)
        else:
            assert replay.request(kind, *fields) == expected, f"line {number}: {line}"
            throttled[kind] += expected not in ("0", "-")
    assert {kind: count for kind, count in throttled.items() if count < 100} == {}, "each kind is throttled at times"
