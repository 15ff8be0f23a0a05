"""What every config model shares: frozen, typed, fields named as Kafka's keys with underscores for dots.

The models hold values that are known to be good: ranges and cross checks belong to `definitions` and `load`, which
speak of keys as the operator wrote them. That keeps a model cheap to build, and lets a test ask for a segment of 200
bytes that no server.properties could. A model is built when it is first asked for (defer_build, and BrokerConfig's
properties): a field costs 0.1 ms of start and 25 KB, and a plain broker needs half of them.
"""

from pydantic import BaseModel, ConfigDict

from kafkapy.config.definitions import Password

__all__ = ["Password", "Section", "dotted"]


def dotted(field: str) -> str:
    """Return Kafka's key for a field: log_segment_bytes -> log.segment.bytes."""
    return field.replace("_", ".")


class Section(BaseModel):
    """A subsystem's part of the configuration."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=dotted,
        populate_by_name=True,
        defer_build=True,
        arbitrary_types_allowed=True,
    )

    @classmethod
    def keys(cls) -> list[str]:
        """Return the dotted keys of this section."""
        return [dotted(field) for field in cls.model_fields]
