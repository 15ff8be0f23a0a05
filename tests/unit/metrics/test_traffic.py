"""What is counted of topics, and of the broker as their sum."""

from kafkapy.metrics.traffic import BrokerTraffic, TopicTraffic
from kafkapy.protocol.error_code import ErrorCode


def test_the_broker_counts_what_its_topics_do_and_what_topics_did_that_are_gone() -> None:
    traffic = BrokerTraffic()
    traffic.of("a").count_appends(produces=2, size_bytes=200, messages=5)
    traffic.of("b").count_appends(produces=1, size_bytes=10, messages=1)
    traffic.forget("a")
    total = traffic.total()
    assert (total.produces, total.bytes_in, total.messages_in) == (3, 210, 6)
    assert list(traffic.topics) == ["b"]


def test_a_topic_made_again_is_counted_anew() -> None:
    traffic = BrokerTraffic()
    traffic.of("a").count_appends(produces=2, size_bytes=200, messages=5)
    traffic.forget("a")
    assert traffic.of("a").bytes_in == 0


def test_only_unexpected_errors_make_a_produce_a_failed_one() -> None:
    topic = TopicTraffic()
    topic.count_refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, 100)
    topic.count_refusal(ErrorCode.MESSAGE_TOO_LARGE, 1000)
    topic.count_refusal(ErrorCode.INVALID_RECORD, 10)
    assert (topic.produces, topic.failed_produces, topic.bytes_rejected, topic.bytes_in) == (3, 1, 1000, 0)


def test_causes_of_refusals_are_distinguished() -> None:
    traffic = BrokerTraffic()
    traffic.count_invalid(ErrorCode.CORRUPT_MESSAGE, 0, is_out_of_sequence=False)
    traffic.count_invalid(ErrorCode.INVALID_RECORD, 3, is_out_of_sequence=False)
    traffic.count_invalid(ErrorCode.INVALID_RECORD, 0, is_out_of_sequence=True)
    traffic.count_invalid(ErrorCode.INVALID_RECORD, 0, is_out_of_sequence=False)
    found = (traffic.invalid_crc_records, traffic.records_without_key, traffic.invalid_sequence_records)
    assert found == (1, 3, 1)
