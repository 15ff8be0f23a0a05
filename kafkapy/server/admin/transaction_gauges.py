"""Gauges of verifications, by which a partition leader asks whether a partition is in a transaction (KIP-890)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Distribution, Gauge, Measured
from kafkapy.server.admin.metadata_gauges import MILLISECONDS

if TYPE_CHECKING:
    from kafkapy.metrics.verifications import VerificationCounts

MANAGER: Final = "kafka.server:type=AddPartitionsToTxnManager"


def verification_gauges(counts: "VerificationCounts") -> Iterator[Measured]:
    yield Distribution(MANAGER, "VerificationTimeMs", (), [counts.times_us.copy()], unit=MILLISECONDS)
    yield Gauge(MANAGER, "VerificationFailureRate", counts.failures, is_counter=True)
