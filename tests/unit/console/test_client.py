"""The clients of the console."""

from kafkapy.console.client import CONSUMER_PROPERTIES


def test_a_search_does_not_sleep_for_a_second_where_its_queue_is_full() -> None:
    """A queue of 2,000 messages is full after each fetch; librdkafka's default of the backoff is 1,000 ms."""
    assert (CONSUMER_PROPERTIES["queued.min.messages"], CONSUMER_PROPERTIES["fetch.queue.backoff.ms"]) == (2000, 10)
