"""Regular expressions of users, compiled by RE2, whose time is linear in the text that it is matched with.

With RE2's defaults a pattern itself may cost much: 400 letters of Unicode half a second to compile and 8 MiB to keep,
5,000 groups half a second for each match, 20,000 classes of Unicode 9 s to read before they are refused. So patterns
of requests must be small, as text and compiled, and capture nothing.
"""

import re
from typing import Any, Final

from kafkapy.errors import KafkapyError

REQUESTED_BYTES: Final = 1 << 18
"""What a request's pattern may take, compiled (matching takes more): some milliseconds of work, and thousands of
alternatives. A deviation: Apache Kafka has no such bound."""


MAX_REQUESTED_CHARACTERS: Final = 32_768
"""Of a request's pattern, or of several together: 5 ms to read. A deviation: Apache Kafka has no such bound."""
MAX_REQUESTED_CLASSES: Final = 64
"""Classes of Unicode (such as \\pL) in a request's pattern, each 0.1 ms to read. A deviation, too."""
MAX_REQUESTED_REPETITIONS: Final = 256
"""Repetitions (such as {9}) in a request's pattern, each 20 us to read. A deviation, too."""
MAX_FOLDED_CHARACTERS: Final = 4_096
"""Of request's patterns that ignore case, where a class of five characters takes 15 us to read. A deviation, too."""
_IGNORES_CASE: Final = re.compile(r"\(\?[imsU-]*i")


class PatternError(KafkapyError):
    """A pattern is not one of RE2, or google-re2 is not installed (its wheel is for the usual platforms only)."""


def compiled(pattern: str, *, is_trusted: bool = False) -> Any:
    """Return a pattern compiled by RE2. Raises PatternError.

    is_trusted: it is of this node's own configuration; it has groups, and may take RE2's default of 8 MiB.
    """
    try:
        import re2  # most nodes never need it
    except ImportError:
        raise PatternError("google-re2 is not installed here") from None
    if not is_trusted:
        check(pattern)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = not is_trusted
    return _compile(pattern, options)  # with memory for states while it matches: without, it takes 50 times as long


def check_sizes(*patterns: str) -> None:
    """Check what it takes to read patterns of a request, together. Raises PatternError."""
    if sum(map(len, patterns)) > MAX_REQUESTED_CHARACTERS:
        raise PatternError("pattern too large - more than 32768 characters")
    if sum(pattern.count("\\p") + pattern.count("\\P") for pattern in patterns) > MAX_REQUESTED_CLASSES:
        raise PatternError("pattern too large - more than 64 classes of Unicode")
    if sum(pattern.count("{") for pattern in patterns) > MAX_REQUESTED_REPETITIONS:
        raise PatternError("pattern too large - more than 256 repetitions")
    if sum(len(pattern) for pattern in patterns if _IGNORES_CASE.search(pattern)) > MAX_FOLDED_CHARACTERS:
        raise PatternError("pattern too large - more than 4096 characters that ignore case")


def check(pattern: str) -> None:
    """Check that a pattern of a request can be compiled, in some milliseconds. Raises PatternError."""
    try:
        import re2
    except ImportError:
        raise PatternError("google-re2 is not installed here") from None
    check_sizes(pattern)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = REQUESTED_BYTES
    _compile(pattern, options)


def _compile(pattern: str, options: Any) -> Any:
    """Raises PatternError."""
    import re2

    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(text) from error
    re2.purge()  # it would keep 128 of them
    return found


def selector_and_pattern(entry: str) -> tuple[str, str] | None:
    """Return the parts of an entry of `match` (selector=pattern), or None if it has not two of them.

    As Java splits at "=": empty parts at the end do not count.
    """
    parts = entry.split("=")
    while parts and not parts[-1]:
        parts.pop()
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None
