"""Fields of forms and of URLs, within their bounds."""

from collections.abc import Mapping

from kafkapy.console.brokers import BadRequest


def number(fields: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = fields.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text) if len(text) < 20 else high + 1
    except ValueError:
        raise BadRequest(f"{name}: {text} is no number.") from None
    if not low <= value <= high:
        raise BadRequest(f"{name}: from {low} to {high}.")
    return value
