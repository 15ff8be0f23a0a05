"""Documentation of configuration keys without a broker: for `kafkapy configs explain`."""

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from kafkapy.cli import chosen
from kafkapy.config import rules
from kafkapy.config.definitions import (
    Definition,
    broker_definitions,
    client_metrics_definitions,
    dynamic_only_definitions,
    group_definitions,
    topic_definitions,
)
from kafkapy.config.documentation import documentation_of
from kafkapy.config.dynamic import cluster_wide_keys, per_broker_keys
from kafkapy.config.load import base_key
from kafkapy.dataclass import dataclass

MAX_WIDTH: Final = 100
"""Lines are wrapped here if the terminal is not narrower: longer ones are hard to read."""


@dataclass(frozen=True, slots=True)
class ExplainedKey:
    """A key of one kind of resource."""

    kind: str
    definition: Definition
    documentation: str
    changes: str
    """How it can be changed while brokers run."""

    def as_json(self) -> dict[str, Any]:
        definition = self.definition
        return {
            "key": definition.key,
            "of": self.kind,
            "type": definition.type.name.lower(),
            "default": None if definition.is_required else definition.default_text,
            "is_required": definition.is_required,
            "valid_values": definition.valid_values or None,
            "changes": self.changes,
            "documentation": self.documentation,
        }

    def text(self, screen_width: int | None = None) -> str:
        """Return the lines about the key; screen_width: of the terminal, None for output that programs read."""
        definition = self.definition
        default = "required" if definition.is_required else f"default {definition.default_text or 'unset'}"
        facts = "; ".join(filter(None, [definition.type.name.lower(), default, definition.valid_values, self.changes]))
        width = min(screen_width or MAX_WIDTH, MAX_WIDTH)
        shown = f"  {facts}" if screen_width is None else _wrapped(facts, width)  # one line, for grep
        return f"{definition.key} ({self.kind})\n{_wrapped(self.documentation, width)}\n{shown}"


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def explained(name: str) -> list[ExplainedKey]:
    """Return the keys named `name` (without a listener prefix); if there is none, those whose names contain it."""
    keys = [each for each in all_keys() if not each.definition.is_internal]
    exact = [each for each in keys if each.definition.key in (name, base_key(name))]
    return exact or [each for each in keys if name in each.definition.key]


def similar(name: str) -> str:
    """Return a "Did you mean" sentence with similar keys, "" if there are none."""
    return chosen.similar(name, {each.definition.key for each in all_keys()})


def all_keys() -> Iterator[ExplainedKey]:
    always = "may change at any time"
    for key, definition in {**broker_definitions(), **dynamic_only_definitions()}.items():
        yield ExplainedKey("broker", definition, _documented(rules.BROKER, key), _changes(key))
    for kind, resource_type, definitions in (
        ("topic", rules.TOPIC, topic_definitions()),
        ("group", rules.GROUP, group_definitions()),
        ("client metrics", rules.CLIENT_METRICS, client_metrics_definitions()),
    ):
        for key, definition in definitions.items():
            yield ExplainedKey(kind, definition, _documented(resource_type, key), always)


def _documented(resource_type: int, key: str) -> str:
    text = documentation_of(resource_type, key)
    assert text is not None, f"{key} is not documented"
    return text


def _changes(key: str) -> str:
    if key in dynamic_only_definitions():
        return "set at run time only, for one broker or all"
    if key in cluster_wide_keys():
        return "may change at run time, for one broker or all"
    return "may change at run time, for one broker" if key in per_broker_keys() else "read at the start"
