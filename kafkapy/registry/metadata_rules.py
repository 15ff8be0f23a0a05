"""Metadata and rule sets of requests, checked as Confluent's Jackson reads them into its classes. Pure.

| object | has |
|---|---|
| metadata | tags: lists of texts by path; properties: texts by name; sensitive: a list of texts |
| rule set | migrationRules, domainRules, encodingRules: lists of rules; enableAt: a text |
| rule | texts; kind and mode: of an enum; tags: a list of texts; params: texts by name; disabled: a boolean |

A number or a boolean in the place of a text becomes one, as in Jackson; null is no text. Other members are kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.registry.errors import invalid_rule_set
from kafkapy.registry.model import RULE_KINDS

TEXTS_OF_A_RULE: Final = ("name", "doc", "type", "expr", "onSuccess", "onFailure")
KINDS: Final = ("TRANSFORM", "CONDITION")
MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
MODES: Final = MIGRATION_MODES + DOMAIN_MODES
DEFAULT_MODE: Final = "WRITEREAD"
MODES_OF: Final = dict(zip(RULE_KINDS, (MIGRATION_MODES, DOMAIN_MODES, DOMAIN_MODES), strict=True))
MODES_OF_PAIRS: Final = ("WRITEREAD", "UPDOWN")
"""Modes whose rules may have two actions, separated by a comma."""
MAX_NAME: Final = 64
"""Characters of a rule's name."""

Reading = Callable[[Any, str], Any]


def metadata_of(found: Any, name: str) -> dict[str, Any] | None:
    """Return metadata, None without any. `name`: of the member that it is. Raises ValueError."""
    readings: dict[str, Reading] = {"tags": _tags, "properties": _texts_by_name, "sensitive": _texts}
    return _members(found, name, readings)


def rule_set_of(found: Any, name: str) -> dict[str, Any] | None:
    """Return a rule set, None without any. `name`: of the member that it is. Raises ValueError."""
    readings: dict[str, Reading] = dict.fromkeys(RULE_KINDS, _rules)
    return _members(found, name, {**readings, "enableAt": _text})


def check_rules(rule_set: Mapping[str, Any] | None) -> None:
    """Raise RegistryError, 42210, for rules that cannot be registered, as RuleSet.validate of Confluent's does."""
    names: set[str] = set()
    for kind in RULE_KINDS:
        for rule in (rule_set or {}).get(kind) or ():
            if rule.get("name") in names:
                raise invalid_rule_set(f"Found rule with duplicate name '{rule['name']}'")
            _check_rule(rule)
            names.add(rule["name"])
            if (rule.get("mode") or DEFAULT_MODE) not in MODES_OF[kind]:
                title = kind.removesuffix("Rules").capitalize()
                raise invalid_rule_set(f"{title} rules can only be {', '.join(MODES_OF[kind])}")


def _check_rule(rule: Mapping[str, Any]) -> None:
    name = rule.get("name")
    if not name:
        raise invalid_rule_set("Missing rule name" if name is None else "Empty rule name")
    if len(name) > MAX_NAME:
        raise invalid_rule_set("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise invalid_rule_set(f"Illegal initial character in rule name: {name}")
    if not all(each.isalnum() or each in "_-" for each in name):
        raise invalid_rule_set(f"Illegal character in rule name: {name}")
    if rule.get("type") is None:
        raise invalid_rule_set("Missing rule type")
    actions = (rule.get("onSuccess") or "") + (rule.get("onFailure") or "")
    if "," in actions and (rule.get("mode") or DEFAULT_MODE) not in MODES_OF_PAIRS:
        raise invalid_rule_set("Multiple actions only valid with WRITEREAD and UPDOWN")


def _members(found: Any, name: str, readings: Mapping[str, Reading]) -> dict[str, Any] | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")
    return {
        key: each if each is None or key not in readings else readings[key](each, f"{name}.{key}")
        for key, each in found.items()
    }


def _rules(found: Any, name: str) -> list[Any]:
    readings: dict[str, Reading] = dict.fromkeys(TEXTS_OF_A_RULE, _text)
    readings |= {"kind": _kind, "mode": _mode, "tags": _texts, "params": _texts_by_name, "disabled": _boolean}
    rules = [_members(each, name, readings) for each in _listed(found, name)]
    if None in rules:
        raise ValueError(f"{name} has a rule that is null")
    return rules


def _kind(found: Any, name: str) -> str:
    return _one_of(KINDS, found, name)


def _mode(found: Any, name: str) -> str:
    return _one_of(MODES, found, name)


def _one_of(allowed: tuple[str, ...], found: Any, name: str) -> str:
    if not isinstance(found, str) or found not in allowed:
        raise ValueError(f"{name} is none of {', '.join(allowed)}")
    return found


def _boolean(found: Any, name: str) -> bool:
    if not isinstance(found, bool):
        raise ValueError(f"{name} is neither true nor false")
    return found


def _text(found: Any, name: str) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str | int | float):
        return str(found)
    raise ValueError(f"{name} is no text")


def _texts(found: Any, name: str) -> list[str]:
    return [_text(each, name) for each in _listed(found, name)]


def _texts_by_name(found: Any, name: str) -> dict[str, str]:
    return {key: _text(each, f"{name}.{key}") for key, each in _named(found, name).items()}


def _tags(found: Any, name: str) -> dict[str, list[str]]:
    return {key: _texts(each, f"{name}.{key}") for key, each in _named(found, name).items()}


def _listed(found: Any, name: str) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def _named(found: Any, name: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")
    return found
