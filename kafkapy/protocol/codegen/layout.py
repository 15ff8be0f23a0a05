"""The byte layout of each struct in each version.

A `StructLayout` is a value: versions with equal layouts share their read and write functions.
"""

from dataclasses import dataclass, field

from kafkapy.protocol.codegen.spec import FieldSpec, MessageSpec, StructSpec

FIXED_CODES = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
    "uuid": "16s",
}  # fmt: skip
"""The `struct` format codes of the fixed-size types."""

FIXED_SIZES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16, "B": 1}


@dataclass(frozen=True)
class FieldLayout:
    """The encoding of a field in a version. `is_compact`: varint lengths; `struct`: the layout of a nested struct."""

    spec: FieldSpec
    is_nullable: bool
    is_compact: bool
    is_tagged: bool
    struct: "StructLayout | None"

    @property
    def minimum_bytes(self) -> int:
        """The minimum encoded size of the field."""
        if self.is_tagged:
            return 0
        if not self.spec.is_array and self.spec.type in FIXED_CODES:
            return FIXED_SIZES[FIXED_CODES[self.spec.type]]
        if self.struct is not None and not self.spec.is_array:
            return 1 if self.is_nullable else self.struct.minimum_bytes
        if self.is_compact:
            return 1
        return 2 if self.spec.type == "string" and not self.spec.is_array else 4

    @property
    def element_bytes(self) -> int:
        """The minimum encoded size of an array element; at least 1, so that array counts are always bounded."""
        if self.struct is not None:
            return max(1, self.struct.minimum_bytes)
        if self.spec.type in FIXED_CODES:
            return FIXED_SIZES[FIXED_CODES[self.spec.type]]
        if self.is_compact:
            return 1
        return 2 if self.spec.type == "string" else 4


@dataclass(frozen=True)
class StructLayout:
    """A struct as one version has it on the wire: its fields, in order, and the tagged ones by their tags."""

    spec: StructSpec
    is_flexible: bool
    fields: tuple[FieldLayout, ...]
    minimum_bytes: int = field(compare=False)

    @property
    def in_order(self) -> list[FieldLayout]:
        return [field for field in self.fields if not field.is_tagged]

    @property
    def tagged(self) -> list[FieldLayout]:
        return sorted((field for field in self.fields if field.is_tagged), key=lambda field: field.spec.tag or 0)

    @property
    def missing(self) -> list[FieldSpec]:
        """The fields that are not in this layout and not ignorable."""
        present = {field.spec for field in self.fields}
        return [field for field in self.spec.fields if field not in present and not field.ignorable]


@dataclass
class MessageLayouts:
    """The distinct layouts of a message. Functions are named after the first version of their layout."""

    spec: MessageSpec
    by_version: dict[int, StructLayout]
    first_version: dict[StructLayout, int]


def message_layouts(spec: MessageSpec) -> MessageLayouts:
    """Return the distinct layouts of the message and of its nested structs, inner before outer."""
    by_version: dict[int, StructLayout] = {}
    first_version: dict[StructLayout, int] = {}
    for version in range(spec.valid.low, spec.valid.high + 1):
        layout = struct_layout(spec, spec.root, version)
        by_version[version] = layout
        _collect(layout, version, first_version)
    return MessageLayouts(spec, by_version, first_version)


def struct_layout(spec: MessageSpec, struct: StructSpec, version: int) -> StructLayout:
    is_flexible = version in spec.flexible
    fields = tuple(
        _field_layout(spec, field, version, is_flexible) for field in struct.fields if version in field.versions
    )
    minimum = sum(field.minimum_bytes for field in fields) + is_flexible
    return StructLayout(struct, is_flexible, fields, minimum)


def _field_layout(spec: MessageSpec, field: FieldSpec, version: int, is_flexible: bool) -> FieldLayout:
    nested = struct_layout(spec, spec.structs[field.type], version) if field.is_struct else None
    return FieldLayout(
        spec=field,
        is_nullable=version in field.nullable,
        is_compact=version in field.flexible if field.flexible is not None else is_flexible,
        is_tagged=version in field.tagged,
        struct=nested,
    )


def _collect(layout: StructLayout, version: int, first_version: dict[StructLayout, int]) -> None:
    for nested in layout.fields:
        if nested.struct is not None:
            _collect(nested.struct, version, first_version)
    first_version.setdefault(layout, version)
