"""The share of time in which the event loop's thread used no CPU."""

from typing import Final

MIN_AGE_S: Final = 1.0
"""Within less, the clocks' own resolution would decide the share."""


class IdleShare:
    """Measured from reading to reading; between readings less than MIN_AGE_S apart the last share stays."""

    def __init__(self) -> None:
        self._wall_s = self._cpu_s = 0.0
        self._is_read = False
        self.share = 1.0
        self.idle_ns = 0
        """The time without CPU since the first reading, in nanoseconds."""
        self.busy_ns = 0
        """The rest of the time."""

    def read(self, wall_s: float, cpu_s: float) -> float:
        """Return the share (0 to 1); wall_s: a monotonic clock, cpu_s: the thread's CPU time so far."""
        passed_s = wall_s - self._wall_s
        if not self._is_read:
            self._wall_s, self._cpu_s, self._is_read = wall_s, cpu_s, True
        elif passed_s >= MIN_AGE_S:
            idle_s = max(passed_s - (cpu_s - self._cpu_s), 0.0)
            self.share = idle_s / passed_s
            self.idle_ns += round(idle_s * 1e9)
            self.busy_ns += round((passed_s - idle_s) * 1e9)
            self._wall_s, self._cpu_s = wall_s, cpu_s
        return self.share
