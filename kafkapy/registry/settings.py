"""Settings of a subject (PUT /config), and how default and override metadata and rules are merged."""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.registry import errors
from kafkapy.registry.metadata_rules import metadata_of, rule_set_of
from kafkapy.registry.model import RULE_KINDS, Level, Settings

LEVEL: Final = "compatibilityLevel"
BOOLEANS: Final = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
TEXTS: Final = ("alias", "aliasForDeks", "compatibilityGroup", "compatibilityPolicy")
METADATA: Final = ("defaultMetadata", "overrideMetadata")
RULE_SETS: Final = ("defaultRuleSet", "overrideRuleSet")
POLICIES: Final = ("STRICT", "LENIENT")


def changes_of(body: Any) -> dict[str, Any]:
    """Return the changes that a body asks for. Raises RegistryError.

    Confluent's registry has the policy LOGICAL as well. Here it is refused: its rules are those of the types of Flink
    and Iceberg, which no client of Kafka has.
    """
    if not isinstance(body, Mapping):
        raise errors.unreadable("the body is no JSON object")
    found: dict[str, Any] = {}
    if "compatibility" in body:
        level = body["compatibility"]
        if level is not None and (not isinstance(level, str) or level.upper() not in Level.__members__):
            raise errors.invalid_compatibility()
        found[LEVEL] = None if level is None else level.upper()
    for names, kind in ((BOOLEANS, bool), (TEXTS, str)):
        for name in names:
            if name in body:
                if body[name] is not None and not isinstance(body[name], kind):
                    raise errors.unreadable(f"{name} is no {kind.__name__}")
                found[name] = body[name]
    try:
        found |= {name: metadata_of(body[name], name) for name in METADATA if name in body}
        found |= {name: rule_set_of(body[name], name) for name in RULE_SETS if name in body}
    except ValueError as error:
        raise errors.unreadable(str(error)) from error
    policy = found.get("compatibilityPolicy")
    if policy is not None and policy.upper() not in POLICIES:
        raise errors.RegistryError(42203, f"Invalid compatibility policy. Valid values are {' and '.join(POLICIES)}")
    return found


def stored_settings(value: Mapping[str, Any]) -> Settings:
    """Return the settings in the value of a CONFIG record, without unknown ones, which another registry wrote."""
    found: Settings = {}
    for name, each in value.items():
        if name == "subject" or each is None:
            continue
        try:
            changes = changes_of({"compatibility" if name == LEVEL else name: each})
        except errors.RegistryError:
            continue
        found[name] = changes.get(name, each)
    return found


def as_request(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as PUT /config answers them: the level is `compatibility` there."""
    return {("compatibility" if name == LEVEL else name): each for name, each in settings.items()}


def merged_metadata(*each: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Merge metadata: where two set the same tag or property, the later one wins; sensitive names are united."""
    given = [one for one in each if one is not None]
    if not given:
        return None
    found: dict[str, Any] = {}
    for one in given:
        for name in ("tags", "properties"):
            if one.get(name):
                found[name] = dict(sorted({**found.get(name, {}), **one[name]}.items()))
        if one.get("sensitive"):
            found["sensitive"] = sorted({*found.get("sensitive", ()), *one["sensitive"]})
    return found


def merged_rule_set(*each: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Merge rule sets: a rule replaces the rule of an earlier set with the same name."""
    given = [one for one in each if one is not None]
    if not given:
        return None
    if len(given) == 1:
        return dict(given[0])
    found: dict[str, Any] = {}
    for one in given:
        for kind in RULE_KINDS:
            if one.get(kind):
                named = {rule.get("name") for rule in one[kind]}
                found[kind] = [rule for rule in found.get(kind, ()) if rule.get("name") not in named] + one[kind]
        if one.get("enableAt"):
            found["enableAt"] = one["enableAt"]
    return found
