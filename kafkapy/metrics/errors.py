"""Counts the error codes of a response, whatever its class: each entry with a field `error_code` has one.

Which fields of a class lead to entries with error codes is found out once, from its annotations.
"""

import inspect
import re
import sys
from collections import Counter
from typing import Any, Final, TypeAlias

from kafkapy.named_tuple import NamedTuple

LISTED: Final = re.compile(r"^list\[(\w+)\]")
EITHER: Final = {"FindCoordinatorResponse": "coordinators", "OffsetFetchResponse": "groups"}
"""Responses whose later versions have these entries instead of an error code of the whole."""


class _Fields(NamedTuple):
    has_code: bool
    nested: "Nested"
    instead: str | None


Nested: TypeAlias = "list[tuple[str, _Fields]]"

_known: dict[type[Any], _Fields] = {}


def count_codes(response: Any, errors: Counter[int]) -> None:
    """Add the error codes of a response to `errors`; a response without a field for one counts as 0."""
    kind = type(response)
    frequent = FREQUENT.get(kind.__name__)
    if frequent is not None:
        frequent(response, errors)
        return
    fields = _known.get(kind)
    if fields is None:
        fields = _known[kind] = _fields_of(kind)
    if fields.has_code or fields.nested:
        _count(response, fields, errors)
    else:
        errors[0] += 1


def _count_fetch(response: Any, errors: Counter[int]) -> None:
    errors[response.error_code] += 1
    for topic in response.responses:
        for partition in topic.partitions:
            errors[partition.error_code] += 1


def _count_produce(response: Any, errors: Counter[int]) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            errors[partition.error_code] += 1


FREQUENT: Final = {"FetchResponse": _count_fetch, "ProduceResponse": _count_produce}
"""The same for the most frequent responses, at a third of the cost."""


def _count(struct: Any, fields: _Fields, errors: Counter[int]) -> None:
    if fields.has_code and (fields.instead is None or not getattr(struct, fields.instead)):
        errors[struct.error_code] += 1
    for name, of_entry in fields.nested:
        for entry in getattr(struct, name) or ():
            _count(entry, of_entry, errors)


def _fields_of(kind: type[Any]) -> _Fields:
    annotations = inspect.get_annotations(kind)
    nested: list[tuple[str, _Fields]] = []
    for name, annotation in annotations.items():
        listed = LISTED.match(str(annotation))
        entry = vars(sys.modules[kind.__module__]).get(listed[1]) if listed is not None else None
        if isinstance(entry, type):
            of_entry = _fields_of(entry)
            if of_entry.has_code or of_entry.nested:
                nested.append((name, of_entry))
    return _Fields("error_code" in annotations, nested, EITHER.get(kind.__name__))
