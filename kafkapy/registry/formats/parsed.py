"""The interface of a parsed schema to the registry, for every format: Avro, JSON Schema, Protobuf."""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, Self

from kafkapy.errors import KafkapyError
from kafkapy.registry.model import SchemaReference

MAX_REASONS: Final = 2_000
"""Of one comparison. Types that are used twice on each of 30 levels would have a billion."""
MAX_STEPS: Final = 1_000_000
"""The steps of one comparison: pairs of types, their members, reasons that are kept. Some seconds, at most 200 MB."""


class SchemaSyntaxError(KafkapyError):
    """A text that is not a schema of its format; the message says why."""


class TooManyTypesError(KafkapyError):
    """Two schemas have more pairs of types to compare than a request is given time for."""

    def __init__(self) -> None:
        super().__init__("their types are in too many relations to each other to be compared")


class Budget:
    """The steps that a comparison may still take."""

    __slots__ = ("_steps_left",)

    def __init__(self) -> None:
        self._steps_left = MAX_STEPS

    def spend(self, steps: int = 1) -> None:
        """Use up some of the allowed steps. Raises TooManyTypesError."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManyTypesError


def json_of(text: str) -> Any:
    """Return the JSON of a schema. Raises SchemaSyntaxError if it is nested too deeply, else ValueError.

    Also for what can be read here and written nowhere: half of a surrogate pair, and numbers beyond those of a double.
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise SchemaSyntaxError("it is nested too deeply") from error
    return found


class ParsedSchema(Protocol):
    """`references`: as given with the schema; `resolved`: the texts of the referenced schemas, by name."""

    kind: str
    references: tuple[SchemaReference, ...]
    resolved: Mapping[str, str]

    @property
    def canonical(self) -> str:
        """The stored text; schemas with equal ones are the same."""

    def normalized(self) -> Self:
        """Return the schema in normal order, for `normalize=true`."""

    def validate_as_new(self) -> None:
        """Do the checks of `validateNewSchemas`: are defaults of their types? Raises SchemaSyntaxError."""

    def formatted(self, style: str) -> str:
        """Return the text in a style of the format; for an unknown style the canonical text."""

    def backward_errors(self, previous: Self, *, lenient: bool) -> list[str]:
        """Return why this schema cannot read data of `previous`; "%s" stands for "new" and "old", in this order.

        At most MAX_REASONS or a few more. Raises TooManyTypesError, RecursionError.
        """

    def has_top_level_field(self, name: str) -> bool:
        """Whether the record, object or first message has a field."""
