"""The progress of a long command, on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from kafkapy.cli.failure import note

BAR_S: Final = 0.1
"""Ten frames a second look like motion."""
LINE_S: Final = 10.0
"""Without a terminal: the interval of lines, as for a log."""
WIDTH: Final = 30
"""The width of the bar, which fits beside the numbers into 80 columns."""
CLEAR: Final = "\r\x1b[K"


class Progress:
    """A context manager, which removes the bar at its end. `what`: in the plural, as `records copied`."""

    def __init__(self, what: str, total: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._total = max(total, 0)
        self._clock_s = clock_s
        self._is_terminal = sys.stderr.isatty()
        self._began_s = self._shown_s = clock_s()
        self._doing = ""
        self._is_drawn = False

    def show(self, done: int, doing: str = "") -> None:
        """Show how many of the total are done, if it is time for it. `doing`: a new phase, shown at once."""
        now_s = self._clock_s()
        if not doing and now_s - self._shown_s < (BAR_S if self._is_terminal else LINE_S):
            return
        self._shown_s = now_s
        self._doing = doing or self._doing
        shown = f"{done:,} of {self._total:,} {self._what}{f', {self._doing}' if self._doing else ''}"
        if not self._is_terminal:
            note(shown)
            return
        share = min(done / self._total, 1.0) if self._total else 1.0
        bar = "#" * int(share * WIDTH)
        self._is_drawn = True
        sys.stderr.write(f"{CLEAR}[{bar:.<{WIDTH}}] {share:4.0%}  {shown}, {now_s - self._began_s:.0f} s")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
