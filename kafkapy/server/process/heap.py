"""Excludes the metadata from garbage collections, which would take 300 ms with 100,000 partitions.

So are a broker's logs and partitions, which it creates in steps, some seconds after the metadata that they follow; and
whatever else has become so much that a full collection took long, such as the members of thousands of groups.

Frozen objects are no longer scanned for cycles. Metadata has no cycles and is freed by its reference counts. Other
objects alive at a freeze leak if they become part of a cycle later: therefore freezes are rare.
"""

import gc
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage

YOUNG: Final = 1
"""The generations collected before a freeze: some thousand objects, half a millisecond. Garbage that has survived both
of them and is part of a cycle leaks; a full collection would hold the loop for as long as the freeze is to save."""
CHANGES_PER_FREEZE: Final = 2_000
"""Partitions and topics that may change before a freeze: 4 ms of a full collection, with the logs of those that are new
(a thousand partitions being reassigned made a controller's last 35 to 48 ms on a busy machine, every two seconds)."""
YOUNG_COLLECTIONS_PER_FULL: Final = 20
"""Collections of the middle generation before a full one; Python's default is 10. That is after 140,000 more objects,
which it visits in 20 to 50 ms. Garbage in cycles that has grown old waits longer for its collection: most garbage here
is freed by its reference counts."""
FULL: Final = 2
LONG_COLLECTION_NS: Final = 10_000_000
"""After a full collection that took longer, what it left is frozen: 30,000 objects, which later ones would visit again
(those of 195 streams groups with 1,000 subtopologies each: 113, 258, 379 and 547 ms)."""


class FreezeAfterLong:
    """Freezes what a full collection has left, if that took long_ns or longer."""

    def __init__(self, long_ns: int = LONG_COLLECTION_NS) -> None:
        self._long_ns = long_ns
        self._began_ns = 0

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Called by the garbage collector, in the thread that caused the collection."""
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        elif time.perf_counter_ns() - self._began_ns >= self._long_ns:
            gc.freeze()


_freeze_after_long: Final = FreezeAfterLong()


def freeze_heap() -> None:
    """Exclude all current objects from later collections: imported modules, then what the start created.

    No collection runs before: only 49 of 44,000 objects are garbage, and finding them takes 15 ms. Not for embedded
    brokers, which come and go in a process.
    """
    gc.freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, YOUNG_COLLECTIONS_PER_FULL)
    if _freeze_after_long.on_collection not in gc.callbacks:
        gc.callbacks.append(_freeze_after_long.on_collection)
    gc.enable()


class FrozenMetadata:
    """Freezes the heap after every CHANGES_PER_FREEZE changes of the metadata, steps that apply them, or logs loaded.

    Also during the start (node.HeapGrowth): it makes most objects, and a full collection of those of 20,000 logs held
    the loop, with a controller's votes, for some 200 ms.
    """

    def __init__(self) -> None:
        self._change_count = 0

    def on_image(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Count the changes of an image (an ImageListener)."""
        if delta.topics_changed is None:
            return
        self.count_changes(sum(1 + len(topic.partition_changes) for topic in delta.topics_changed.changed.values()))

    def count_changes(self, change_count: int) -> None:
        """Count further changes; freeze if there are enough."""
        self._change_count += change_count
        if self._change_count >= CHANGES_PER_FREEZE:
            self._change_count = 0
            gc.collect(YOUNG)  # what it finds would be kept for ever
            gc.freeze()
