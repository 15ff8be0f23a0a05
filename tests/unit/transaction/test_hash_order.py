"""The order of Java's hash collections; tests/golden/test_transactions.py has Apache Kafka's own."""

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.transaction.hash_order import as_loaded, as_set, by_topic, string_hash, with_added
from kafkapy.types import TopicPartition

PARTITIONS = st.lists(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 100)), max_size=60)


def test_a_string_has_javas_hash_code() -> None:
    assert string_hash("") == 0
    assert string_hash("orders") == 0xC3DF62E5
    assert string_hash("__transaction_state") == 0xF0E70C10
    assert string_hash("AaAa") == string_hash("BBBB") == 0x1F0080
    assert string_hash("𝄞") == 31 * 0xD834 + 0xDD1E, "two UTF-16 code units"


def test_elements_of_one_bucket_stay_in_the_order_of_insertion() -> None:
    first, second = TopicPartition("AaAa", 1), TopicPartition("BBBB", 1)
    assert as_set([first, second]) == (first, second)
    assert as_set([second, first]) == (second, first)
    assert with_added([second], [first]) == (second, first)


def test_topics_of_one_bucket_are_grouped_last_one_first() -> None:
    assert by_topic([TopicPartition("AaAa", 1), TopicPartition("BBBB", 2), TopicPartition("AaAa", 3)]) == [
        ("BBBB", [2]),
        ("AaAa", [1, 3]),
    ]


@given(PARTITIONS, PARTITIONS)
def test_nothing_is_lost_or_doubled(partitions: list[TopicPartition], added: list[TopicPartition]) -> None:
    before = as_loaded(partitions)
    assert sorted(before) == sorted(set(partitions))
    union = with_added(before, added)
    assert sorted(union) == sorted(set(partitions) | set(added))
    grouped = by_topic(union)
    assert sorted((topic, number) for topic, numbers in grouped for number in numbers) == sorted(union)
    assert len({topic for topic, _ in grouped}) == len(grouped)
