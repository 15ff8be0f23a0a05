"""A node's copies of its cluster's faults: they match requests here; the test's process counts and decides the hits."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kafkapy.embedded.faults.rules import Fault, FaultSpec, Hit, Matched
from kafkapy.embedded.observed.requests import Request

Draw: TypeAlias = "Callable[[list[tuple[int, Hit]]], asyncio.Future[tuple[list[int], list[int]]]]"
"""Asks which of these faults, by number, hit a request; the result has them, and the faults that are over."""


class NodeFaults:
    """Implements faults.rules.Rules."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._copies: dict[int, Fault] = {}

    def set(self, specs: Sequence[FaultSpec]) -> None:
        """Match by these faults. Those that were known go on, with what they did not match."""
        self._copies = {spec.number: self._copies.get(spec.number) or Fault.copy_of(spec) for spec in specs}

    def of_api(self, api_key: int) -> list[Fault]:
        """Return the faults that may hit a request of this API, in the order in which they were set."""
        return [fault for fault in self._copies.values() if fault.api_key == api_key and not fault.is_over]

    def draw(self, matched: list[Matched]) -> "asyncio.Future[list[Fault]]":
        """Count a request that these faults match, return those that hit it: none if the test's process has ended."""
        found: asyncio.Future[list[Fault]] = asyncio.get_running_loop().create_future()

        def finish(response: "asyncio.Future[tuple[list[int], list[int]]]") -> None:
            hits, over = ([], []) if response.exception() is not None else response.result()
            for fault, _ in matched:
                if fault.number in over:
                    fault.remove()
            if not found.done():
                found.set_result([fault for fault, _ in matched if fault.number in hits])

        self._draw([(fault.number, hit) for fault, hit in matched]).add_done_callback(finish)
        return found

    def nearly_hit(self) -> dict[int, list[str]]:
        """Return the requests that the faults nearly matched, by their numbers."""
        return {number: fault.nearly_hit for number, fault in self._copies.items()}


class SentRequests:
    """Implements observed.requests.Recording: sends requests to the test's process."""

    def __init__(self, notify: Callable[..., Any]) -> None:
        self.is_on = False
        self._notify = notify

    def add(self, request: Request) -> None:
        self._notify("requested", request)
