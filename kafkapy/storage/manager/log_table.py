"""Logs by partition, counted by directory as they come and go: a new one goes where the fewest are."""

from collections import Counter

from kafkapy.storage.log.log import Log
from kafkapy.types import TopicPartition


class LogTable(dict[TopicPartition, Log]):
    """A dict that is changed by `table[partition] = log`, `del` and `take` only."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """How many logs lie in each directory, by its path."""

    def __setitem__(self, topic_partition: TopicPartition, log: Log) -> None:
        self.take(topic_partition)
        super().__setitem__(topic_partition, log)
        self.counts[log.log_dir.path] += 1

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        self.counts[self[topic_partition].log_dir.path] -= 1
        super().__delitem__(topic_partition)

    def take(self, topic_partition: TopicPartition) -> Log | None:
        """Return a partition's log and forget it; None where there is none."""
        log = self.get(topic_partition)
        if log is not None:
            del self[topic_partition]
        return log
