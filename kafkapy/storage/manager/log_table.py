"""Logs by partition, with a count by directory: new logs are placed in the directory with the fewest."""

from collections import Counter
from collections.abc import Collection, Iterable

from kafkapy.storage.log.log import Log
from kafkapy.types import TopicPartition


class Removals:
    """The logs that leave the tables while somebody looks at them in steps."""

    __slots__ = ("logs",)

    def __init__(self) -> None:
        self.logs: list[Log] = []


class LogTable(dict[TopicPartition, Log]):
    """A dict changed only by `table[partition] = log`, `del` and `remove`."""

    __slots__ = ("_watchers", "counts")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """The number of logs by directory path."""
        self._watchers: list[Removals] = []

    def watch(self, removals: Removals) -> None:
        """Add each log that leaves the table to `removals`, until `unwatch`."""
        self._watchers.append(removals)

    def unwatch(self, removals: Removals) -> None:
        self._watchers.remove(removals)

    def __setitem__(self, topic_partition: TopicPartition, log: Log) -> None:
        if topic_partition in self:
            del self[topic_partition]
        super().__setitem__(topic_partition, log)
        self.counts[log.log_dir.path] += 1

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        log = self[topic_partition]
        path = log.log_dir.path
        assert self.counts[path] > 0, f"no log is counted in {path}"
        self.counts[path] -= 1
        super().__delitem__(topic_partition)
        for removals in self._watchers:
            removals.logs.append(log)

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
