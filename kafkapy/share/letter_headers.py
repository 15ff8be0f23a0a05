"""The names of a dead letter's headers (KIP-1191), and of the group config that names the dead-letter topic."""

from typing import Final

TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"

TOPIC_HEADER: Final = "__dlq.errors.topic"
PARTITION_HEADER: Final = "__dlq.errors.partition"
OFFSET_HEADER: Final = "__dlq.errors.offset"
GROUP_HEADER: Final = "__dlq.errors.group"
DELIVERY_COUNT_HEADER: Final = "__dlq.errors.delivery.count"
MESSAGE_HEADER: Final = "__dlq.errors.message"
