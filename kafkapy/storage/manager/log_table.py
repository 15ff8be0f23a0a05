"""Logs by partition, with a count by directory: new logs are placed in the directory with the fewest."""

from collections import Counter
from collections.abc import Collection, Iterable

from kafkapy.storage.log.log import Log
from kafkapy.types import TopicPartition


class LogTable(dict[TopicPartition, Log]):
    """A dict changed only by `table[partition] = log`, `del` and `take`."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """The number of logs by directory path."""

    def __setitem__(self, topic_partition: TopicPartition, log: Log) -> None:
        if topic_partition in self:
            del self[topic_partition]
        super().__setitem__(topic_partition, log)
        self.counts[log.log_dir.path] += 1

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        path = self[topic_partition].log_dir.path
        assert self.counts[path] > 0, f"no log is counted in {path}"
        self.counts[path] -= 1
        super().__delitem__(topic_partition)

    def remove(self, topic_partition: TopicPartition) -> Log | None:
        """Remove and return a partition's log, or None."""
        log = self.get(topic_partition)
        if log is not None:
            del self[topic_partition]
        return log


def selected(logs: LogTable, wanted: Collection[TopicPartition] | None) -> Iterable[Log]:
    """Return the logs of some partitions, as far as they are there; None: all of them."""
    if wanted is None:
        return logs.values()
    return [logs[topic_partition] for topic_partition in wanted if topic_partition in logs]
