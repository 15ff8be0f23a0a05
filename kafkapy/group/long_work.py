"""What a decision depends on and takes long to compute: large target assignments, large topologies.

A decision that may give way (RequestContext.gives_way) does not compute it: it changes nothing, and raises
LongWorkError. runtime/coordinators/long_decisions.py computes it in turns, has the result kept, and decides again.
"""

from typing import Any, Final, Protocol

from kafkapy.machine import SmallSteps, end_of

MOST_RESULTS: Final = 8
"""Results that a request keeps: more than the times it is decided again."""


class LongWork(Protocol):
    """Work with all its input. It is not changed by what happens meanwhile."""

    def steps(self) -> SmallSteps[Any]:
        """Return the steps, whose result is the work's."""

    def is_same(self, other: Any) -> bool:
        """Whether other work has the same result for certain."""


class SizedWork(LongWork, Protocol):
    """Work that may be done at once if it is not large."""

    @property
    def is_large(self) -> bool: ...


class LongWorkError(Exception):
    """A decision needs the result of this work first."""

    def __init__(self, work: LongWork) -> None:
        super().__init__("the result of long work is needed first")
        self.work = work


class Results:
    """The results of work that was done for one request, which is decided again."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: list[tuple[LongWork, Any]] = []

    def keep(self, work: LongWork, result: Any) -> None:
        self._results = [*self._results[1 - MOST_RESULTS :], (work, result)]
        assert len(self._results) <= MOST_RESULTS, f"{len(self._results)} results are kept"

    def of(self, work: LongWork) -> Any:
        """Return the result of the same work, None if there is none."""
        return next((result for done, result in self._results if done.is_same(work)), None)


NO_RESULTS: Final = Results()
"""Of a decision that is made for the first time."""


def result_of(work: SizedWork, results: Results, *, gives_way: bool) -> Any:
    """Return the result of work. Raises LongWorkError if it takes long, was not done yet, and may give way."""
    result = results.of(work)
    if result is not None:
        return result
    if gives_way and work.is_large:
        raise LongWorkError(work)
    return end_of(work.steps())
