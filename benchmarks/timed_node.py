"""A node whose event loop notes the turns that take long: `python -m benchmarks.timed_node start FILE`, as `kafkapy`.

A turn is one pass of the loop: nobody else is served meanwhile. Counted is the CPU of the loop's thread, which other
programs on the machine change little. A line of JSON for each turn of 10 ms (or KAFKAPY_TURNS_MS) and more goes to the
file named by KAFKAPY_TURNS: when it ended (monotonic seconds), its CPU, how much of that was collections of garbage,
and where the loop was when a timer of CPU time looked, the innermost call first. asyncio's own loop takes uvloop's
place, which lets no one look between its passes.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final, TextIO

import uvloop

from kafkapy.__main__ import main

ENVIRONMENT: Final = "KAFKAPY_TURNS"
NOTED_MS: Final = float(os.environ.get("KAFKAPY_TURNS_MS", "10"))
SAMPLE_S: Final = 0.004
SHOWN_CALLS: Final = 12


class TimedLoop(asyncio.SelectorEventLoop):
    """Writes a line for each long turn."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file
        self._began_s = 0.0
        self._collected_s = 0.0
        self._collection_began_s = 0.0
        self._samples: list[str] = []
        gc.callbacks.append(self._on_collection)
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def close(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.callbacks.remove(self._on_collection)
        super().close()

    def _run_once(self) -> None:
        self._collected_s = 0.0
        self._samples.clear()
        self._began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        taken_ms = (time.thread_time() - self._began_s) * 1000
        if taken_ms >= NOTED_MS:
            self._note(taken_ms)

    def _note(self, taken_ms: float) -> None:
        turn = {
            "ended_s": time.monotonic(),
            "cpu_ms": round(taken_ms, 1),
            "collected_ms": round(self._collected_s * 1000, 1),
            "samples": self._samples,
        }
        self._file.write(json.dumps(turn) + "\n")
        self._file.flush()

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collection_began_s

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if (time.thread_time() - self._began_s) * 1000 >= NOTED_MS:
            self._samples.append(" < ".join(_calls(frame)))


def _calls(frame: FrameType | None) -> Iterator[str]:
    """Yield the innermost calls, each with its line."""
    for _ in range(SHOWN_CALLS):
        if frame is None:
            return
        yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back


if __name__ == "__main__":
    with open(os.environ[ENVIRONMENT], "a") as turns:
        uvloop.new_event_loop = lambda: TimedLoop(turns)  # type: ignore[assignment, return-value]
        sys.exit(main())
