"""Regular expressions of users, compiled by RE2, whose time is linear in the text that it is matched with.

With RE2's defaults a pattern itself may cost much: 400 letters of Unicode half a second to compile and 8 MiB to keep,
5,000 groups half a second for each match, 20,000 classes of Unicode 9 s to read before they are refused. So patterns
of requests must be small, as text and compiled, and capture nothing.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from kafkapy.errors import KafkapyError

REQUESTED_BYTES: Final = 1 << 18
"""What a request's pattern may take, compiled (matching takes more): some milliseconds of work, and thousands of
alternatives. Deviation: Apache Kafka has no bound. Here what is beyond is refused, because the event loop compiles
it."""
MAX_REQUESTED_CHARACTERS: Final = 32_768
"""The most characters of the patterns of a request: 5 ms to read. Deviation: Apache Kafka has no bound. Here there is
one, because the event loop reads them."""
MAX_REQUESTED_CLASSES: Final = 64
"""The most classes of Unicode (such as \\pL) in them, each 0.1 ms to read. Deviation: Apache Kafka has no bound. Here
there is one, because the event loop reads them."""
MAX_REQUESTED_REPETITIONS: Final = 256
"""The most repetitions (such as {9}) in them, each 20 us to read. Deviation: Apache Kafka has no bound. Here there is
one, because the event loop reads them."""
MAX_FOLDED_CHARACTERS: Final = 4_096
"""The most characters of those that ignore case: a class of five takes 15 us to read. Deviation: Apache Kafka has no
bound. Here there is one, because the event loop reads them."""
_IGNORES_CASE: Final = re.compile(r"\(\?[imsU-]*i")


class PatternError(KafkapyError):
    """A pattern is not one of RE2, or google-re2 is not installed (its wheel is for the usual platforms only)."""


def compiled(pattern: str, *, is_trusted: bool = False) -> Any:
    """Return a pattern compiled by RE2, with memory for states while it matches (without, it takes 50 times as long).

    is_trusted: it is of this node's own configuration; it has groups, and may take RE2's default of 8 MiB. Raises
    PatternError.
    """
    if not is_trusted:
        check(pattern)
    return _compile(pattern, captures=is_trusted)


def check(pattern: str) -> None:
    """Check that a pattern of a request can be compiled, in some milliseconds. Raises PatternError."""
    _re2()
    check_sizes(pattern)
    _compile(pattern, captures=False, max_bytes=REQUESTED_BYTES)


def check_sizes(*patterns: str) -> None:
    """Check what it takes to read patterns of a request, together. Raises PatternError."""
    folded = [pattern for pattern in patterns if _IGNORES_CASE.search(pattern)]
    _check_size(sum(map(len, patterns)), MAX_REQUESTED_CHARACTERS, "characters")
    _check_size(_count(patterns, "\\p") + _count(patterns, "\\P"), MAX_REQUESTED_CLASSES, "classes of Unicode")
    _check_size(_count(patterns, "{"), MAX_REQUESTED_REPETITIONS, "repetitions")
    _check_size(sum(map(len, folded)), MAX_FOLDED_CHARACTERS, "characters that ignore case")


def _check_size(size: int, most: int, unit: str) -> None:
    if size > most:
        raise PatternError(f"pattern too large - more than {most} {unit}")


def _count(patterns: Iterable[str], text: str) -> int:
    return sum(pattern.count(text) for pattern in patterns)


def _compile(pattern: str, *, captures: bool, max_bytes: int | None = None) -> Any:
    """Return a pattern compiled by RE2; max_bytes: other than RE2's default. Raises PatternError."""
    re2 = _re2()
    options = re2.Options()
    options.log_errors = False
    options.never_capture = not captures
    if max_bytes is not None:
        options.max_mem = max_bytes
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(text) from error
    re2.purge()  # it would keep 128 of them
    return found


def _re2() -> Any:
    try:
        import re2  # most nodes never need it
    except ImportError:
        raise PatternError("google-re2 is not installed here") from None
    return re2


def selector_and_pattern(entry: str) -> tuple[str, str] | None:
    """Return the parts of an entry of `match` (selector=pattern), or None if it has not two of them.

    As Java splits at "=": empty parts at the end do not count.
    """
    parts = entry.split("=")
    while parts and not parts[-1]:
        parts.pop()
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None
