"""Which replicas a throttle covers, and what its rate lets pass. Kafka's ReplicationQuotaManager."""

import pytest

from kafkapy.replication.throttle import covers
from kafkapy.security.rate import SimpleRate


@pytest.mark.parametrize(
    ("entries", "covered"),
    [
        ((), set()),
        (("",), set()),
        (("*",), {0, 1, 2}),
        (("0:1", "2:1", "1:2"), {0, 2}),
        (("0:11",), set()),
    ],
)
def test_a_list_covers_the_partitions_that_it_names_for_the_broker(entries: tuple[str, ...], covered: set[int]) -> None:
    assert {each for each in range(3) if covers(entries, node_id=1, partition_id=each)} == covered


def test_the_first_window_counts_whole_and_no_window_before_it() -> None:
    rate = SimpleRate(11, 1000)
    rate.record(500, 10_000)
    assert rate.per_second(10_000) == 500
    assert rate.throttle_ms(500, 10_000) == 0
    rate.record(1500, 10_100)
    assert rate.per_second(10_500) == 2000
    assert rate.per_second(12_000) == 1000
    assert rate.throttle_ms(500, 12_000) == 2000


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = SimpleRate(11, 1000)
    rate.record(1 << 30, 0)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0
