"""A process that copies topics exactly once: records and offsets in one transaction, some of which it aborts.

    python -m tests.support.copier BOOTSTRAP GROUP PROTOCOL TRANSACTIONAL_ID RECORDS TOPIC...

Each topic goes to TOPIC-copy, partition by partition, at most RECORDS in a transaction, until the process is killed.
What it cannot mend ends it with exit code 1; whoever runs it starts it again.

So does an abort that takes back records whose delivery is not known. When a leader dies before it answers, librdkafka
(2.16.0, and its sources of July 2026) puts the records back into its queue, where abort_transaction finds them, takes
them for never sent and gives their sequence numbers to the next records, in the same epoch
(rd_kafka_toppar_purge_queues). If the leader had appended them, its heir rightly answers that the next ones are there
already: they are lost, from Apache Kafka too. A new process has a new epoch.
"""

import random
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ABORTED_SHARE = 0.2


class Copier:
    """One consumer and one transactional producer."""

    def __init__(
        self, bootstrap: str, group: str, protocol: str, transactional_id: str, records: int, topics: Sequence[str]
    ) -> None:
        self._records = records
        patience = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",  # librdkafka 2.16 hangs if it re-bootstraps amid a transaction
            "log_level": 0,
        }
        of_group: dict[str, object] = {"group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            of_group |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
        self._consumer = Consumer(
            {
                **patience,
                **of_group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe(list(topics))
        self._producer = Producer(
            {**patience, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000, "linger.ms": 1}
        )
        self._producer.init_transactions(60)
        self._undelivered = 0

    def copy_for_ever(self) -> None:
        while True:
            messages = [each for each in self._consumer.consume(self._records, 0.5) if each.error() is None]
            if messages:
                self._copy(messages)

    def _copy(self, messages: Sequence[Message]) -> None:
        try:
            self._producer.begin_transaction()
            for message in messages:
                target = f"{message.topic()}-copy"
                self._producer.produce(
                    target, message.value(), partition=message.partition(), on_delivery=self._note_delivery
                )
            ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), 30)
            if random.random() < ABORTED_SHARE:
                self._abort()
            else:
                self._producer.commit_transaction(30)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _note_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self._undelivered += error is not None

    def _abort(self) -> None:
        """Take the transaction back, and read on where the last committed one ended."""
        self._producer.abort_transaction(30)
        if self._undelivered:
            sys.exit(f"{self._undelivered} records may have been written or not: a new epoch is needed")
        for position in self._consumer.committed(self._consumer.assignment(), 30):
            start = position.offset if position.offset >= 0 else 0
            self._consumer.seek(TopicPartition(position.topic, position.partition, start))


if __name__ == "__main__":
    try:
        Copier(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6:]).copy_for_ever()
    except KafkaException as failure:
        sys.exit(f"{failure}")
