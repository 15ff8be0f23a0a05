"""A priority queue that returns items of equal priority in the order of java.util.PriorityQueue."""

from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class JavaQueue(Generic[ItemT]):
    """A binary heap with Java's sifting, which differs from heapq's: it stops at the first place that fits."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, ItemT]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, priority: float, item: ItemT) -> None:
        """Add an item; the smallest priority comes first. It must not change while the item is in the queue."""
        heap = self._heap
        heap.append((priority, item))
        index = len(heap) - 1
        while index > 0:
            parent = (index - 1) >> 1
            if priority >= heap[parent][0]:
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = (priority, item)

    def poll(self) -> ItemT:
        """Remove and return the first item of a queue that is not empty."""
        heap = self._heap
        assert heap, "the queue is empty"
        last = heap.pop()
        if not heap:
            return last[1]
        first = heap[0][1]
        self._sift_down(last)
        return first

    def _sift_down(self, entry: tuple[float, ItemT]) -> None:
        heap = self._heap
        count = len(heap)
        index = 0
        while index < count >> 1:
            child = 2 * index + 1
            if child + 1 < count and heap[child][0] > heap[child + 1][0]:
                child += 1
            if entry[0] <= heap[child][0]:
                break
            heap[index] = heap[child]
            index = child
        heap[index] = entry
