"""Committed offsets with librdkafka's clients, asked for until the group's coordinator answers.

After a start or a failover, and for the first group of all, COORDINATOR_LOAD_IN_PROGRESS and NOT_COORDINATOR are right
answers, from Apache Kafka too. librdkafka's admin client reports them; consumers raise them after a few tries.
"""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.eventually import eventually

Positions = dict[tuple[str, int], TopicPartition]


def commit(consumer: Consumer, *positions: TopicPartition) -> None:
    """Commit these positions, or those that were consumed, and return once they are acknowledged."""

    def is_acknowledged() -> bool:
        given = {"offsets": list(positions)} if positions else {}
        acknowledged = consumer.commit(**given, asynchronous=False)
        return all(each.error is None for each in acknowledged)

    eventually(is_acknowledged, what="the commit")


def committed(bootstrap: str, group: str) -> Positions:
    """Return what a group has committed, by topic and partition."""
    requested = [ConsumerGroupTopicPartitions(group)]

    def send_request() -> tuple[Positions] | None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # one that got an error may crash later
        found = admin.list_consumer_group_offsets(requested)[group].result(60).topic_partitions
        if any(each.error is not None for each in found):
            return None
        return ({(each.topic, each.partition): each for each in found},)  # may be empty

    found: Positions
    (found,) = eventually(send_request, what=f"a response about the offsets of {group}")
    return found


def committed_offsets(bootstrap: str, group: str) -> dict[int, int]:
    """Return what a group that reads one topic has committed, by partition."""
    return {partition: each.offset for (_, partition), each in committed(bootstrap, group).items()}
