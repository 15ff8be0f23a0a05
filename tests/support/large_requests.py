"""Requests with very many elements: for each array that an API's request has at a version, one that fills it.

They are made from the layouts that the codec is generated from, so a new API or version has its own without more.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kafkapy.protocol.api import APIS
from kafkapy.protocol.api_table import MESSAGE_MODULES
from kafkapy.protocol.codegen.layout import FieldLayout, StructLayout, struct_layout
from kafkapy.protocol.codegen.spec import MessageSpec, load_spec

SPECS = Path(__file__).parents[2] / "protocol_specs" / "api"

ArrayPath = tuple[str, ...]
"""The attributes that lead from a request to one of its arrays, arrays all."""


@cache
def request_spec(api_key: int) -> MessageSpec:
    return load_spec(SPECS / f"{APIS[api_key].request_name}.json")


def array_paths(api_key: int, version: int) -> list[ArrayPath]:
    """Return every array of the request, each with those around it."""
    spec = request_spec(api_key)
    return list(_arrays_in(struct_layout(spec, spec.root, version), ()))


def element_count(path: ArrayPath, count: int, *, is_wide: bool = False) -> int:
    """Return how many elements large_request's request has in all."""
    return count // len(path) * len(path) if is_wide else len(path) - 1 + count


def _arrays_in(layout: StructLayout, above: ArrayPath) -> Iterator[ArrayPath]:
    for field in layout.fields:
        if field.spec.is_array:
            path = (*above, field.spec.attribute)
            yield path
            if field.struct is not None:
                yield from _arrays_in(field.struct, path)


def large_request(
    api_key: int,
    version: int,
    path: ArrayPath,
    count: int,
    *,
    is_wide: bool = False,
    is_distinct: bool = True,
    values: Mapping[str, Any] | None = None,
) -> Any:
    """Return a request whose array at `path` has `count` elements.

    The arrays around it have one element each; where `is_wide`, the outermost has as many as `count` allows, each with
    one of the next. Strings and ints of the elements differ where `is_distinct`; `values` are set by attribute.
    """
    spec = request_spec(api_key)
    depth = len(path)
    counts = [count // depth] + [1] * (depth - 1) if is_wide and path else [1] * (depth - 1) + [count]
    maker = _Maker(spec, is_distinct=is_distinct, values=values or {})
    return maker.struct(struct_layout(spec, spec.root, version), path, counts, 0)


class _Maker:
    def __init__(self, spec: MessageSpec, *, is_distinct: bool, values: Mapping[str, Any]) -> None:
        self._module = import_module(f"kafkapy.protocol.messages.{MESSAGE_MODULES[spec.name]}")
        self._is_distinct = is_distinct
        self._values = values

    def struct(self, layout: StructLayout, path: ArrayPath, counts: list[int], index: int) -> Any:
        item = getattr(self._module, layout.spec.name)()
        for field in layout.fields:
            if not field.is_tagged or field.spec.attribute in path[:1]:
                setattr(item, field.spec.attribute, self._field(field, path, counts, index))
        return item

    def _field(self, field: FieldLayout, path: ArrayPath, counts: list[int], index: int) -> Any:
        name = field.spec.attribute
        if path and name == path[0]:
            return [self._element(field, path[1:], counts[1:], each or index) for each in range(counts[0])]
        if name in self._values and not isinstance(self._values[name], list):
            return self._values[name]
        if field.spec.is_array:
            return []
        if field.struct is not None:
            return None if field.is_nullable else self.struct(field.struct, (), [], index)
        return self._scalar(field, index)

    def _element(self, field: FieldLayout, path: ArrayPath, counts: list[int], index: int) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, path, counts, index)
        return self._scalar(field, index)

    def _scalar(self, field: FieldLayout, index: int) -> Any:
        number = index if self._is_distinct else 0
        match field.spec.type:
            case "string":
                return f"{number:x}"
            case "int32" | "int64":
                return number
            case "uuid":
                return number.to_bytes(16, "big")
            case "bool":
                return False
            case "bytes" | "records":
                return b""
            case "float64":
                return 0.0
        return 0
