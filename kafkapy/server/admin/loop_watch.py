"""Measures how late the event loop runs its timers, and how long garbage collections hold it up."""

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Final

from kafkapy.metrics.histogram import bucket_of

if TYPE_CHECKING:
    from kafkapy.metrics.registry import NodeCounts

INTERVAL_S: Final = 0.25
"""Often enough to meet the stalls that clients notice, and rarely enough to cost nothing."""


class LoopWatch:
    """Runs from construction, on the loop's thread, to stop()."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counts: "NodeCounts") -> None:
        self._loop = loop
        self._counts = counts
        self._began_ns = 0
        gc.callbacks.append(self._on_collection)
        self._wait()

    def stop(self) -> None:
        self._timer.cancel()
        gc.callbacks.remove(self._on_collection)

    def _wait(self) -> None:
        self._due_s = time.monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        late_us = round((time.monotonic() - self._due_s) * 1e6)
        self._counts.loop_lag_us[bucket_of(late_us)] += 1
        self._wait()

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self._counts.gc_pauses_us[bucket_of((time.perf_counter_ns() - self._began_ns) // 1000)] += 1
