"""What every config model shares: frozen, typed, fields named as Kafka's keys with underscores for dots.

The models hold values that are known to be good: `definitions` types and checks a text by its key, `checks` compares
keys, and both speak of keys as the operator wrote them. A test may ask for a segment of 200 bytes that no
server.properties could.

They are plain dataclasses, and pydantic validates them as they are (tests/unit/config does, strictly). Models derived
from pydantic's BaseModel cost 150 ms and 16 MB of a start that may take 300 ms and 60 MB, to check a second time what
the table has checked with Kafka's own words; these cost 8 ms and 1 MB.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self


def dotted(field: str) -> str:
    """Return Kafka's key for a field: log_segment_bytes -> log.segment.bytes."""
    return field.replace("_", ".")


class Section:
    """A subsystem's part of the configuration."""

    __slots__ = ()
    __pydantic_config__ = {"arbitrary_types_allowed": True, "revalidate_instances": "always"}
    """For those who validate with pydantic: takes Password as it is, looks into a section that is one already."""

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Return this section's dotted keys, each with its field."""
        return {dotted(field.name): field.name for field in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the section made of typed values by dotted key; other sections' keys may be among them."""
        return cls(**{field: values[key] for key, field in cls.keys().items()})
