"""ssl.principal.mapping.rules: maps a certificate's subject to a user name (KIP-371).

The first rule that applies is used. DEFAULT always applies and keeps the subject. RULE:pattern/replacement/[LU] applies
if the pattern matches the whole subject; it replaces like Java's replaceAll, then converts to lower (L) or upper case
(U). Patterns are Java regular expressions; one that Python's `re` does not support prevents the start.

Deviation: Apache Kafka starts with a replacement that names a group its pattern lacks. Here it stops the start, because
each login to which that rule applies would fail.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Final

from kafkapy.dataclass import dataclass

_DEFAULT: Final = "DEFAULT"
_RULE: Final = r"(?a)(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_END_OF_RULE: Final = r"(?a)\s*(?:,\s*|$)"
_NAMED_GROUP: Final = r"\(\?<(?=[a-zA-Z])"
_ITEM: Final = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\."
"""In a pattern: an escaped character, a character class, or a dot."""
_DOTALL: Final = r"\(\?[a-zA-Z]*s"
_DOT: Final = "[^\n\r\x85\u2028\u2029]"
"""What a dot matches in Java; in Python only a line feed ends a line."""
MAX_NAME_LENGTH: Final = 4096
"""Deviation: Apache Kafka has no bound. Here longer subjects are mapped by no rule, and not by DEFAULT, because names
are kept."""
MAX_MATCHED_LENGTH: Final = 320
"""Deviation: Apache Kafka has no bound. Here subjects that are longer match no pattern, and no rule after it applies,
because a pattern with three repetitions, as in Kafka's documentation, takes time with the cube of the length if a
crafted subject fails at its end. That is 60 ms at this length, 1.8 s at 999 characters, in which nobody else is served.
"""


class MappingRuleError(ValueError):
    """A rule is invalid, or no rule applies to a name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; with pattern None (DEFAULT) it keeps the name."""

    pattern: re.Pattern[str] | None
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """Return the user's name, or None if the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = "".join(self._replaced(self.pattern, name))
        if self.case == "L":
            return replaced.lower()
        return replaced.upper() if self.case == "U" else replaced

    def _replaced(self, pattern: re.Pattern[str], name: str) -> Iterator[str]:
        """Yield the parts of Java's replaceAll, which goes on a character further after an empty match.

        Python's `sub` looks there for a longer match first.
        """
        copied = position = 0
        while position <= len(name) and (match := pattern.search(name, position)) is not None:
            yield name[copied : match.start()]
            yield from (part if isinstance(part, str) else match[part] or "" for part in self.replacement)
            copied = match.end()
            position = copied + (match.start() == copied)
        yield name[copied:]


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Parse the rules. Raises MappingRuleError."""
        self._text = rules
        self._rules = tuple(_parse(rules))

    def name_of(self, distinguished_name: str) -> str:
        """Return the user's name. Raises MappingRuleError if no rule applies."""
        length = len(distinguished_name)
        for rule in self._rules:
            if length > (MAX_NAME_LENGTH if rule.pattern is None else MAX_MATCHED_LENGTH):
                raise MappingRuleError(f"The subject has {length} characters, too many for the rules {self._text}")
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise MappingRuleError(f"No rules apply to {distinguished_name}, rules {self._text}")


def _parse(text: str) -> list[Rule]:
    text = text.strip()
    if text == _DEFAULT:
        return [Rule(None, (), "")]  # as nearly always: nothing is compiled for it
    rule, end_of_rule = re.compile(_RULE), re.compile(_END_OF_RULE)
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        matched = rule.match(text, position)
        end = end_of_rule.match(text, matched.end() if matched is not None else position)
        if end is None:
            raise MappingRuleError(f"Invalid rule: {text[position:]}")
        if matched is not None:
            rules.append(_rule(matched))
        position = end.end()
    return rules


def _rule(matched: re.Match[str]) -> Rule:
    if matched[1] is not None:
        return Rule(None, (), "")
    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):  # Java's nested sets: [a-z&&[^x]]
            pattern = re.compile(_python_pattern(matched[2]), re.ASCII)
    except (re.error, FutureWarning) as error:
        raise MappingRuleError(f"Invalid rule: {matched[0]}: {error}") from error
    return Rule(pattern, tuple(_replacement(matched[3], pattern)), matched[4])


def _python_pattern(pattern: str) -> str:
    """Return a Java pattern with Python's syntax of named groups, and dots that match what Java's do."""
    pattern = re.sub(_NAMED_GROUP, "(?P<", pattern)
    if re.search(_DOTALL, pattern):
        return pattern
    return re.sub(_ITEM, lambda found: _DOT if found[0] == "." else found[0], pattern, flags=re.DOTALL)


def _replacement(text: str, pattern: re.Pattern[str]) -> list[str | int]:
    """Return a replacement as literals and group numbers. Raises MappingRuleError."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\":
            if position == len(text):
                raise MappingRuleError(f"character to be escaped is missing in the replacement {text}")
            parts.append(text[position])
            position += 1
        elif letter == "$":
            group, position = _reference(text, position, pattern)
            parts.append(group)
        else:
            parts.append(letter)
    return parts


def _reference(text: str, position: int, pattern: re.Pattern[str]) -> tuple[str | int, int]:
    """Return the group that `$...` refers to, and the position after it.

    Returns a literal `$` if the number is above the pattern's groups and the pattern has any.
    """
    named = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(text, position)
    if named is not None:
        if named[1] not in pattern.groupindex:
            raise MappingRuleError(f"No group with name {{{named[1]}}}")
        return pattern.groupindex[named[1]], named.end()
    digits = re.compile(r"[0-9]+").match(text, position)
    if digits is None:
        raise MappingRuleError(f"Illegal group reference in the replacement {text}")
    number, end = int(text[position]), position + 1
    if number > pattern.groups:
        if pattern.groups:
            return "$", position
        raise MappingRuleError(f"No group {number}")
    while end < digits.end() and int(text[position : end + 1]) <= pattern.groups:
        number, end = int(text[position : end + 1]), end + 1
    return number, end
