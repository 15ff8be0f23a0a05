"""Which appends of a leader wait, so that one fsync and one fetch of each follower carry many (append.linger.ms).

As in Apache Kafka's BatchAccumulator, the wait begins with the first append that waits and ends for all at once: after
controller.quorum.append.linger.ms, when a batch's worth of bytes has come together, or with a control record, which
never waits.

Deviation: Apache Kafka has each append wait. Here it waits only if two before it are not yet committed, and keeps a
batch of its own, because a topic created while nothing else happens would take 25 ms longer. So would each of the
changes that a start consists of. A client that sends one change after the other causes as many fsyncs either way.
"""

from kafkapy.dataclass import dataclass
from kafkapy.raft.config import FOREVER_MS


@dataclass(slots=True)
class AppendLinger:
    """The waiting appends of one leader epoch. [released_end_offset, end of the log) waits while is_waiting."""

    linger_ms: int
    batch_bytes: int
    released_end_offset: int
    """The end of what is fsynced, or about to be, and sent to followers."""
    deadline_ms: int = FOREVER_MS
    size_bytes: int = 0
    last_append_end_offset: int = -1
    former_append_end_offset: int = -1
    """The end of the append before the last one."""

    @property
    def is_waiting(self) -> bool:
        return self.deadline_ms < FOREVER_MS

    def should_wait(self, size_bytes: int, *, high_watermark: int, end_offset: int, now_ms: int) -> bool:
        """Record an append that moved the log's end to `end_offset`; return whether it waits."""
        assert end_offset > self.last_append_end_offset, "an append makes the log longer"
        is_alone = self.former_append_end_offset <= high_watermark
        self.former_append_end_offset, self.last_append_end_offset = self.last_append_end_offset, end_offset
        self.size_bytes += size_bytes
        if is_alone or self.linger_ms == 0 or self.size_bytes >= self.batch_bytes:
            return False
        if not self.is_waiting:
            self.deadline_ms = now_ms + self.linger_ms
        return True

    def release(self, end_offset: int) -> None:
        """End the wait: everything below `end_offset` is fsynced now."""
        assert end_offset >= self.released_end_offset
        self.released_end_offset = end_offset
        self.deadline_ms = FOREVER_MS
        self.size_bytes = 0
