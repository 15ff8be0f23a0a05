"""Text of a peer, made fit for a log line."""

from typing import Final

MAX_LOGGED: Final = 400
"""The maximum number of characters of client data in a log line: Apache Kafka's own texts are shorter."""


def one_line(text: str) -> str:
    """Return the text shortened and escaped, so that it can neither forge nor flood log lines."""
    if len(text) > MAX_LOGGED:
        text = f"{text[:MAX_LOGGED]}..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
