"""The base class of all config models: frozen and typed, with Kafka's keys (underscores for dots) as field names.

The models do not validate. `definitions` parses and checks each key's text, and `checks` compares keys; both report
errors by the keys that the operator wrote. So a test can build a model with values that server.properties does not
allow, such as a segment of 200 bytes.

They are plain dataclasses that pydantic can validate (tests/unit/config does, strictly). Models derived from pydantic's
BaseModel would cost 150 ms and 16 MB of a start that may take 300 ms and 60 MB, to repeat checks that `definitions`
makes with Kafka's own messages. These cost 8 ms and 1 MB.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Self


def dotted(field: str) -> str:
    """Return Kafka's key for a field: log_segment_bytes -> log.segment.bytes."""
    return field.replace("_", ".")


class Section:
    """The configuration of one subsystem."""

    __slots__ = ()
    __pydantic_config__ = {"arbitrary_types_allowed": True, "revalidate_instances": "always"}
    """For validation with pydantic: accept Password as it is, and validate instances again."""

    @classmethod
    @cache
    def keys(cls) -> Mapping[str, str]:
        """Return this section's dotted keys, with the field of each."""
        return {dotted(field.name): field.name for field in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Build the section from typed values by dotted key; keys of other sections are ignored."""
        return cls(**{field: values[key] for key, field in cls.keys().items()})
