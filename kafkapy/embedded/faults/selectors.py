"""Which requests a fault hits: the keyword arguments of `faults.fail` and the like."""

from typing import Any, Final, TypedDict

from kafkapy.errors import quoted


class Selectors(TypedDict, total=False):
    """Which requests a fault hits. `may_miss`: it is all right if it never does."""

    version: int | range | None
    topic: str | None
    partition: int | None
    group: str | None
    transactional_id: str | None
    client_id: str | None
    connection: str | None
    nth: int | None
    times: int | None
    may_miss: bool


REQUEST_SELECTORS: Final = ("topic", "partition", "group", "transactional_id")
"""The selectors for which a request has to be decoded."""
TEXTS: Final = ("topic", "group", "transactional_id", "client_id", "connection")
LEAST: Final = {"partition": 0, "times": 1, "nth": 1}
"""The numbers, with the least that each may be."""


def complaint_about(selectors: Selectors) -> str | None:
    """Return why no request can be meant by these, whatever its API is; None if one can."""
    given: dict[str, Any] = {name: value for name, value in selectors.items() if value is not None}
    for name, value in given.items():
        if name not in Selectors.__annotations__:
            return f"there is no selector {quoted(name)}, only {', '.join(Selectors.__annotations__)}"
        if name in TEXTS and not isinstance(value, str):
            return f"{name} is a text, not {value!r}"
        if name in LEAST and not _is_number(value, LEAST[name]):
            return f"{name} is a number from {LEAST[name]} on, not {quoted(str(value))}"
    version = given.get("version")
    if version is not None and not isinstance(version, range) and not _is_number(version, 0):
        return f"version is a number or a range of numbers, not {version!r}"
    if "nth" in given and "times" in given:
        return f"nth={given['nth']} hits one request: leave times out"
    return None


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
