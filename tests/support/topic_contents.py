"""What partition 0 of a topic has, as confluent-kafka reads it: for tests of embedded brokers."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

TIMEOUT_S = 60


def messages(config: Mapping[str, str], topic: str) -> list[Message]:
    """Read from offset 0 to the end. `config`: as Broker.client_config returns it."""
    consumer = Consumer({**config, "group.id": "reading", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(message)
    finally:
        consumer.close()


def offsets(config: Mapping[str, str], topic: str) -> tuple[int, int]:
    """Return the log start offset and the high watermark."""
    consumer = Consumer({**config, "group.id": "looking"})
    start_offset, end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    consumer.close()
    return start_offset, end_offset
