"""What lists of throttled replicas may have in them that names no replica."""

from kafkapy.replication.throttle import covers


def test_an_entry_with_a_number_too_long_to_read_covers_nothing_and_harms_nothing() -> None:
    entries = ("9" * 5_000 + ":1", "3:1", "4:" + "9" * 5_000)
    assert covers(entries, node_id=1, partition_id=3)
    assert not covers(entries, node_id=1, partition_id=4)
