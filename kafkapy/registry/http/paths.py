"""Paths and queries of requests, as they were sent: a subject may have a slash, as %2F."""

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import parse_qs, unquote

from kafkapy.dataclass import dataclass
from kafkapy.registry.errors import RegistryError
from kafkapy.registry.request import int32_of
from kafkapy.registry.subjects import DEFAULT_CONTEXT, Subject, context_prefix

OF_SETTINGS: Final = ("config", "mode")


@dataclass(frozen=True, slots=True)
class Target:
    """`parts`: of the path, without a context in front, which is in the subject now."""

    parts: tuple[str, ...]
    query: dict[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        found = int32_of(text)
        if found is None:
            raise RegistryError(404, "HTTP 404 Not Found")  # as Jersey, for a parameter of the wrong type
        return found

    def page(self, found: Sequence[object]) -> list[object]:
        """Return the items that `offset` and `limit` select."""
        start, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return list(found[start : start + limit] if limit > 0 else found[start:])


def target_of(raw_path: bytes, query: bytes, alias_of: Callable[[str], str | None]) -> Target:
    """Parse a request's path and query. `alias_of`: returns the subject that a subject's settings name instead."""
    parts = [unquote(part) for part in raw_path.decode("latin-1").partition("?")[0].split("/") if part]
    parameters = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    if parts[:1] == ["contexts"] and len(parts) > 1:
        parts, parameters = _within_context(parts, parameters)
    return Target(_with_alias(tuple(parts), alias_of), parameters)


def _within_context(parts: list[str], query: dict[str, list[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """Return a path of a context, /contexts/.ctx/subjects/name, as one with the context in its subject."""
    context, rest = Subject.parse(parts[1] if parts[1].startswith(":") else f":{parts[1]}:").context, parts[2:]
    prefix = context_prefix(context)
    if not rest:
        return (["contexts", prefix] if context != DEFAULT_CONTEXT else ["contexts", parts[1]]), query
    index = 1 if rest[0] in ("subjects", *OF_SETTINGS) else 2 if rest[:2] == ["compatibility", "subjects"] else -1
    if rest == ["subjects"] or rest == ["schemas"]:
        given = query.get("subjectPrefix", [""])
        return rest, {**query, "subjectPrefix": [_qualified(each, prefix) for each in given]}
    if rest[:2] == ["schemas", "ids"]:
        return rest, {**query, "subject": [_qualified(query.get("subject", [""])[0], prefix)]}
    if 0 < index < len(rest):
        rest[index] = _qualified(rest[index], prefix)
    elif len(rest) == 1 and rest[0] in OF_SETTINGS and prefix:
        rest.append(prefix)
    return rest, query


def _qualified(subject: str, prefix: str) -> str:
    return subject if subject.startswith((":.", ":*:")) else prefix + subject


def _with_alias(parts: tuple[str, ...], alias_of: Callable[[str], str | None]) -> tuple[str, ...]:
    index = 1 if parts[:1] == ("subjects",) else 2 if parts[:2] == ("compatibility", "subjects") else 0
    if not 0 < index < len(parts):
        return parts
    alias = alias_of(parts[index])
    return parts if alias is None else (*parts[:index], alias, *parts[index + 1 :])
