"""A hierarchical timing wheel: thousands of time-outs, each added and cancelled in O(1). Varghese and Lauck, 1987.

Time is counted in ticks. Write a tick as a number in base `wheel_size`: level k of the wheel holds the entries whose
highest digit that differs from the current tick is digit k, with one slot per value of that digit. It follows that

* every entry of a level is due before every entry of the level above, and the lowest occupied slot is due next;
* an entry moves to a lower level when the wheel reaches its slot: at most once per level, usually never, since most
  entries are cancelled first;
* a bit mask per level records the occupied slots, so finding the next one needs no search and no heap.

The wheel reads no clock: the caller passes the time to `advance`. Entries expire never early and less than one tick
late. Driven by `runtime/expirer.py`.
"""

from collections.abc import Callable

from kafkapy.native import mypyc_attr

FAR_FUTURE_MS = 1 << 62
"""Later than every deadline."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerEntry:
    """Base class of objects with a deadline; the object is its own handle. In at most one wheel at a time."""

    __slots__ = ("_slot", "deadline_ms")

    deadline_ms: int

    def __init__(self) -> None:
        self.deadline_ms = FAR_FUTURE_MS
        self._slot: dict[TimerEntry, None] | None = None

    @property
    def is_scheduled(self) -> bool:
        return self._slot is not None

    def cancel(self) -> bool:
        """Remove the entry from its wheel; return whether it was in one."""
        slot = self._slot
        if slot is None:
            return False
        del slot[self]
        self._slot = None
        return True

    def on_timeout(self, now_ms: int) -> None:
        """Called when the deadline has passed; the entry is no longer in the wheel."""
        raise NotImplementedError


class _Level:
    """The slots of one digit. A set bit in `occupied` means that the slot may hold entries."""

    __slots__ = ("occupied", "slots")

    def __init__(self, wheel_size: int) -> None:
        self.occupied = 0
        self.slots: list[dict[TimerEntry, None]] = [{} for _ in range(wheel_size)]


class TimingWheel:
    """Holds entries until their deadline.

    `on_earlier_deadline(deadline_ms)` is called when an added entry is due before all others.
    """

    __slots__ = ("_bits", "_current_tick", "_levels", "_next_wake_ms", "_tick_ms", "on_earlier_deadline")

    def __init__(
        self,
        *,
        start_ms: int,
        tick_ms: int = 1,
        wheel_size: int = 64,
        on_earlier_deadline: Callable[[int], None] | None = None,
    ) -> None:
        assert tick_ms > 0
        assert wheel_size > 1
        assert wheel_size & (wheel_size - 1) == 0, "digits are taken by shifting"
        self._tick_ms = tick_ms
        self._bits = wheel_size.bit_length() - 1
        self._current_tick = start_ms // tick_ms
        self._levels = [_Level(wheel_size)]
        self._next_wake_ms = FAR_FUTURE_MS
        self.on_earlier_deadline = on_earlier_deadline

    def add(self, entry: TimerEntry, deadline_ms: int) -> None:
        """Schedule an entry. An entry with a past deadline expires at the next `advance`."""
        assert entry._slot is None, "an entry is in one wheel at a time"
        entry.deadline_ms = deadline_ms
        self._place(entry)
        if deadline_ms < self._next_wake_ms:
            self._next_wake_ms = deadline_ms
            if self.on_earlier_deadline is not None:
                self.on_earlier_deadline(deadline_ms)

    def advance(self, now_ms: int) -> list[TimerEntry]:
        """Advance to `now_ms`; return the expired entries, by tick, then in the order they were added. O(1) each."""
        target_tick = now_ms // self._tick_ms
        expired: list[TimerEntry] = []
        while (found := self._next_slot()) is not None:
            level_index, slot_index, start_tick = found
            if start_tick > target_tick:
                break
            self._current_tick = start_tick
            entries = self._pop_slot(level_index, slot_index)
            if level_index == 0:
                expired.extend(entries)
            else:
                for entry in entries:
                    self._place(entry)
        self._current_tick = max(self._current_tick, target_tick)
        for entry in expired:
            entry._slot = None
        self._next_wake_ms = FAR_FUTURE_MS
        return expired

    def next_deadline_ms(self) -> int | None:
        """Return when to call `advance` next, or None if the wheel is empty.

        It is at most the first deadline rounded up to a tick; earlier if entries have to move down a level first.
        """
        found = self._next_slot()
        if found is None:
            self._next_wake_ms = FAR_FUTURE_MS
            return None
        self._next_wake_ms = found[2] * self._tick_ms
        return self._next_wake_ms

    def _place(self, entry: TimerEntry) -> None:
        tick = max(-(-entry.deadline_ms // self._tick_ms), self._current_tick)
        level_index = ((tick ^ self._current_tick) | 1).bit_length() - 1
        level_index //= self._bits
        while level_index >= len(self._levels):
            self._levels.append(_Level(1 << self._bits))
        level = self._levels[level_index]
        slot_index = (tick >> (level_index * self._bits)) & ((1 << self._bits) - 1)
        level.occupied |= 1 << slot_index
        entry._slot = slot = level.slots[slot_index]
        slot[entry] = None

    def _next_slot(self) -> tuple[int, int, int] | None:
        """Return (level, slot, first tick of the slot) of the earliest entries. Clears the bits of empty slots."""
        for level_index, level in enumerate(self._levels):
            while level.occupied:
                slot_index = (level.occupied & -level.occupied).bit_length() - 1
                if level.slots[slot_index]:
                    return level_index, slot_index, self._first_tick(level_index, slot_index)
                level.occupied &= level.occupied - 1
        return None

    def _first_tick(self, level_index: int, slot_index: int) -> int:
        shift = level_index * self._bits
        above = shift + self._bits
        return (self._current_tick >> above << above) | (slot_index << shift)

    def _pop_slot(self, level_index: int, slot_index: int) -> dict[TimerEntry, None]:
        level = self._levels[level_index]
        entries, level.slots[slot_index] = level.slots[slot_index], {}
        level.occupied &= ~(1 << slot_index)
        return entries
