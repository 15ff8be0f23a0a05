"""Long computations that a decision depends on: large target assignments, large topologies.

A decision with GroupRequestContext.gives_way does not do such work: it changes nothing, and raises LongWorkError.
runtime/coordinators/long_decisions.py does the work in turns of the loop, keeps the result, and decides again.
"""

from typing import Any, Final, Protocol

from kafkapy.machine import SmallSteps, end_of

MAX_RESULTS: Final = 8
"""Results that a request keeps: more than the number of its decisions."""


class LongWork(Protocol):
    """Work with all its input, which later events do not change."""

    def steps(self) -> SmallSteps[Any]:
        """Return the steps, whose result is the work's."""

    def is_same(self, other: Any) -> bool:
        """Whether other work certainly has the same result."""


class SizedWork(LongWork, Protocol):
    """Work that is done at once unless it is large."""

    @property
    def is_large(self) -> bool: ...


class LongWorkError(Exception):
    """A decision needs the result of this work before it can be made."""

    def __init__(self, work: LongWork) -> None:
        super().__init__("the result of long work is needed first")
        self.work = work


class Results:
    """The results of work for one request, which is then decided again."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: list[tuple[LongWork, Any]] = []

    def keep(self, work: LongWork, result: Any) -> None:
        self._results = [*self._results[1 - MAX_RESULTS :], (work, result)]
        assert len(self._results) <= MAX_RESULTS, f"{len(self._results)} results are kept"

    def of(self, work: LongWork) -> Any:
        """Return the result of the same work, None if there is none."""
        return next((result for done, result in self._results if done.is_same(work)), None)


NO_RESULTS: Final = Results()
"""The results for the first decision of a request: none."""


def result_of(work: SizedWork, results: Results, *, gives_way: bool) -> Any:
    """Return the result of work. Raises LongWorkError if it takes long, was not done yet, and may give way."""
    result = results.of(work)
    if result is not None:
        return result
    if gives_way and work.is_large:
        raise LongWorkError(work)
    return end_of(work.steps())
