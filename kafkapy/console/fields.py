"""Fields of forms and of URLs, within their bounds."""

from collections.abc import Collection, Mapping

from kafkapy.console.brokers import BadRequest


def number(fields: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return a number within its bounds; an empty field is the default. Raises BadRequest."""
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


def choice(fields: Mapping[str, str], name: str, choices: Collection[str], default: str = "") -> str:
    """Return one of the choices; an empty field is the default. Raises BadRequest."""
    value = fields.get(name) or default
    if value not in choices:
        raise BadRequest(f"{name}: one of {', '.join(choices)}.")
    return value
