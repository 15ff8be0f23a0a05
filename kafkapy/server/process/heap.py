"""Excludes the metadata from garbage collections, which would take 300 ms with 100,000 partitions.

A broker's logs and partitions, too: made in steps, they come seconds after the metadata that they follow.

Frozen objects are no longer scanned for cycles. Metadata has no cycles and is freed by its reference counts. Other
objects alive at a freeze leak if they become part of a cycle later: therefore freezes are rare.
"""

import gc
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
YOUNG_COLLECTIONS_PER_FULL: Final = 100
"""Collections of the middle generation before a full one; Python's default is 10. A full one holds the loop for 10 to
30 ms if thousands of logs are in use, whose objects no freeze counts. Garbage in cycles that has grown old waits longer
for its collection: most garbage here is freed by its reference counts."""


def freeze_heap() -> None:
    """Exclude all current objects from later collections: imported modules, then what the start created.

    No collection runs before: only 49 of 44,000 objects are garbage, and finding them takes 15 ms. Not for embedded
    brokers, which come and go in a process.
    """
    gc.freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, YOUNG_COLLECTIONS_PER_FULL)
    gc.enable()


class FrozenMetadata:
    """Freezes the heap after every CHANGES_PER_FREEZE changes of the metadata, or steps that apply them."""

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
