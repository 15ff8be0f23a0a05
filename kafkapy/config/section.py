"""What every config model shares: frozen, typed, fields named as Kafka's keys with underscores for dots.

The models hold values that are known to be good: ranges and cross checks belong to `definitions` and `load`, which
speak of keys as the operator wrote them. That keeps a model cheap to build, and lets a test ask for a segment of 200
bytes that no server.properties could.
"""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


def dotted(field: str) -> str:
    """Return Kafka's key for a field: log_segment_bytes -> log.segment.bytes."""
    return field.replace("_", ".")


class Section(BaseModel):
    """A subsystem's part of the configuration."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=dotted, populate_by_name=True, defer_build=True
    )

    @classmethod
    def keys(cls) -> Iterable[str]:
        """Return the dotted keys of this section."""
        return [dotted(field) for field in cls.model_fields]
