"""Whether a Protobuf schema can read what another one wrote, by the rules that Confluent's registry publishes.

Fields are identified by their numbers. Numeric types with one wire type may replace each other, and so may string and
bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from kafkapy.dataclass import dataclass
from kafkapy.registry.formats.parsed import Budget, TooManyTypesError

Field = FieldDescriptorProto
COMPATIBLE: Final = frozenset(
    ("MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED",
     "ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
     "ONEOF_ADDED", "ONEOF_REMOVED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL")
)  # fmt: skip
SCALAR_KINDS: Final = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64), "number"),
    **dict.fromkeys((Field.TYPE_BOOL, Field.TYPE_ENUM), "number"),
    **dict.fromkeys((Field.TYPE_SINT32, Field.TYPE_SINT64), "signed number"),
    **dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES), "text"),
    **dict.fromkeys((Field.TYPE_FIXED32, Field.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((Field.TYPE_FIXED64, Field.TYPE_SFIXED64), "fixed64"),
    Field.TYPE_FLOAT: "float",
    Field.TYPE_DOUBLE: "double",
}
"""Types of one kind can be read as each other."""
MAX_MESSAGES: Final = 20_000
"""Compared, each as often as a field names it: as in Confluent's registry, which does so without end."""

_SENTENCES: Final = {
    "PACKAGE_CHANGED": "The package at '{}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    path: tuple[str, ...]

    @property
    def pointer(self) -> str:
        return "#/" + "/".join(self.path)

    def __str__(self) -> str:
        sentence = _SENTENCES.get(self.kind, "").replace("{}", self.pointer)
        return f'{{errorType:"{self.kind}", description:"{sentence}"}}'


@dataclass(frozen=True, slots=True)
class ProtoFiles:
    """A file with resolved types, and all that it imports."""

    file: FileDescriptorProto
    imported: tuple[FileDescriptorProto, ...] = ()

    def types(self) -> dict[str, tuple[str, Any]]:
        """Return the messages and enums by full name: the package of each, and its descriptor."""
        found: dict[str, tuple[str, Any]] = {}
        for file in (*self.imported, self.file):
            prefix = f".{file.package}" if file.package else ""
            for name, described in _within(prefix, file.message_type, file.enum_type):
                found[name] = (file.package, described)
        return found


def _within(prefix: str, messages: Any, enums: Any) -> Iterator[tuple[str, Any]]:
    for enum in enums:
        yield f"{prefix}.{enum.name}", enum
    for message in messages:
        yield f"{prefix}.{message.name}", message
        yield from _within(f"{prefix}.{message.name}", message.nested_type, message.enum_type)


def differences(original: ProtoFiles, update: ProtoFiles) -> list[Difference]:
    """Return how two schemas differ, harmless differences too."""
    comparison = _Comparison(original.types(), update.types())
    if original.file.package != update.file.package:
        comparison.add("PACKAGE_CHANGED", ())
    comparison.compare_types((), original.file, update.file)
    return comparison.found


class _Comparison:
    def __init__(self, before: dict[str, tuple[str, Any]], after: dict[str, tuple[str, Any]]) -> None:
        self._before = before
        self._after = after
        self._open: list[Any] = []
        """The messages that are being compared: a message may have fields of its own type."""
        self.found: list[Difference] = []
        self._compared_count = 0
        self._budget = Budget()

    def add(self, kind: str, path: tuple[str, ...]) -> None:
        self._budget.spend()
        self.found.append(Difference(kind, path))

    def compare_types(self, path: tuple[str, ...], original: Any, update: Any) -> None:
        """Compare the messages and enums of two files, or of two messages, by name."""
        before, after = _messages_of(original), _messages_of(update)
        places = {name: index for index, name in enumerate(before)}
        for index, (name, message) in enumerate(after.items()):
            if name not in before:
                self.add("MESSAGE_ADDED", (*path, name))
                continue
            self._messages((*path, name), before[name], message)
            if places[name] != index:
                self.add("MESSAGE_MOVED", (*path, name))
        for name in before.keys() - after.keys():
            self.add("MESSAGE_REMOVED", (*path, name))
        old, new = ({each.name: each for each in below.enum_type} for below in (original, update))
        for name in dict.fromkeys((*old, *new)):
            if name in old and name in new:
                self._enums((*path, name), old[name], new[name])
            else:
                self.add("ENUM_REMOVED" if name in old else "ENUM_ADDED", (*path, name))

    def _enums(self, path: tuple[str, ...], original: EnumDescriptorProto, update: EnumDescriptorProto) -> None:
        self._budget.spend(1 + max(len(original.value), len(update.value)))
        before, after = ({each.number: each.name for each in enum.value} for enum in (original, update))
        for number in sorted(before.keys() | after.keys()):
            if number not in after:
                self.add("ENUM_CONST_REMOVED", (*path, str(number)))
            elif number not in before:
                self.add("ENUM_CONST_ADDED", (*path, str(number)))
            elif before[number] != after[number]:
                self.add("ENUM_CONST_CHANGED", (*path, str(number)))

    def _messages(self, path: tuple[str, ...], original: DescriptorProto, update: DescriptorProto) -> None:
        if any(each is original for each in self._open):
            return
        self._compared_count += 1
        if self._compared_count > MAX_MESSAGES:
            raise TooManyTypesError
        self._open.append(original)
        self._fields(path, original, update)
        self._open.pop()
        self.compare_types(path, original, update)

    def _fields(self, path: tuple[str, ...], original: DescriptorProto, update: DescriptorProto) -> None:
        self._budget.spend(max(len(original.field), len(update.field)))
        before, after = _Fields(original), _Fields(update)
        self._oneofs(path, before, after)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            old, new = before.by_number.get(number), after.by_number.get(number)
            was_in, is_in = before.oneof_of(number), after.oneof_of(number)
            if old is None or new is None:
                self._one_sided(path, number, before, after)
                continue
            if was_in and not is_in:
                self.add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number)))
            here = (*path, is_in, str(number)) if is_in else (*path, str(number))
            if old.name != new.name:
                self.add("FIELD_NAME_CHANGED", here)
            was, now = _typed(old, before.entries, update.options), _typed(new, after.entries, update.options)
            self._compare_kinds(here, was, now)

    def _one_sided(self, path: tuple[str, ...], number: int, before: "_Fields", after: "_Fields") -> None:
        """Compare a field that only one of the messages has."""
        fields, change = (before, "REMOVED") if number in before.by_number else (after, "ADDED")
        field, oneof = fields.by_number[number], fields.oneof_of(number)
        if oneof:
            if change == "ADDED" or not before.is_gone(oneof, after):
                self.add(f"ONEOF_FIELD_{change}", (*path, oneof, str(number)))
            return
        kind = "REQUIRED_FIELD" if field.label == Field.LABEL_REQUIRED else "FIELD"
        self.add(f"{kind}_{change}", (*path, str(number)))

    def _oneofs(self, path: tuple[str, ...], before: "_Fields", after: "_Fields") -> None:
        for name, numbers in after.oneofs.items():
            known = [number for number in numbers if number in before.by_number]
            from_top = [number for number in known if not before.oneof_of(number)]
            origins = {before.oneof_of(number) for number in known if before.oneof_of(number)}
            if len(origins) + len(from_top) > 1:
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(from_top) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(kind, (*path, name))
        for name in sorted(before.oneofs.keys() ^ after.oneofs.keys()):
            self.add("ONEOF_REMOVED" if name in before.oneofs else "ONEOF_ADDED", (*path, name))

    def _compare_kinds(self, path: tuple[str, ...], old: "_Typed", new: "_Typed") -> None:
        if old.kind != new.kind:
            self.add("FIELD_KIND_CHANGED", path)
        elif old.kind == "map":
            assert old.entry is not None, "a map has an entry"
            assert new.entry is not None, "a map has an entry"
            for one, other in zip(old.entry.field, new.entry.field, strict=True):
                self._compare_kinds(path, _typed(one, {}, None), _typed(other, {}, None))
        elif old.kind == "message":
            self._named_types(path, old.field.type_name, new.field.type_name)
        else:
            self._scalars(path, old, new)

    def _scalars(self, path: tuple[str, ...], old: "_Typed", new: "_Typed") -> None:
        kind = SCALAR_KINDS[old.field.type]
        if kind != SCALAR_KINDS[new.field.type]:
            self.add("FIELD_SCALAR_KIND_CHANGED", path)
        elif old.label and new.label and old.label != new.label:
            self.add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if kind == "text" else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _named_types(self, path: tuple[str, ...], old_name: str, new_name: str) -> None:
        old, new = self._before.get(old_name), self._after.get(new_name)
        if old is None or new is None:  # of a file that protobuf itself has
            if old_name != new_name:
                self.add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        local = _local_name(old_name, old[0])
        if local != _local_name(new_name, new[0]):
            self.add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        at = len(self.found)
        self._messages(tuple(local.split(".")), old[1], new[1])
        if any(each.kind not in COMPATIBLE for each in self.found[at:]):
            self.add("FIELD_NAMED_TYPE_CHANGED", path)


class _Fields:
    """The fields of a message by number, and the oneofs that a text shows."""

    def __init__(self, message: DescriptorProto) -> None:
        self.by_number = {each.number: each for each in message.field if each.type != Field.TYPE_GROUP}
        self.entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        """By name: the messages that maps have for their keys and values."""
        self.oneofs: dict[str, list[int]] = {}
        for each in self.by_number.values():
            if each.HasField("oneof_index") and not each.proto3_optional:
                self.oneofs.setdefault(message.oneof_decl[each.oneof_index].name, []).append(each.number)
        self._oneof_of = {number: name for name, numbers in self.oneofs.items() for number in numbers}

    def oneof_of(self, number: int) -> str:
        """Return the oneof of a field, "" without one."""
        return self._oneof_of.get(number, "")

    def is_gone(self, oneof: str, after: "_Fields") -> bool:
        """Whether a oneof was deleted with all of its fields, which is compatible."""
        return oneof not in after.oneofs and not any(number in after.by_number for number in self.oneofs[oneof])


@dataclass(frozen=True, slots=True)
class _Typed:
    """A field's kind: scalar, message or map (`entry` has its key and value); `label` as the text has it."""

    kind: str
    field: FieldDescriptorProto
    label: str
    entry: DescriptorProto | None = None


def _typed(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto], options: Any) -> _Typed:
    label = _label(field) if options is not None else ""
    if field.type != Field.TYPE_MESSAGE:
        return _Typed("scalar", field, label)
    entry = entries.get(field.type_name.rpartition(".")[2])
    return _Typed("message" if entry is None else "map", field, label, entry)


def _label(field: FieldDescriptorProto) -> str:
    """Return the label of a text; "" for the fields of proto3 and of oneofs that have none."""
    if field.label == Field.LABEL_REPEATED:
        return "repeated"
    if field.label == Field.LABEL_REQUIRED:
        return "required"
    return "optional" if field.proto3_optional else ""


def _messages_of(parent: Any) -> dict[str, DescriptorProto]:
    messages = parent.message_type if isinstance(parent, FileDescriptorProto) else parent.nested_type
    return {each.name: each for each in messages if not each.options.map_entry}


def _local_name(full_name: str, package: str) -> str:
    return full_name.removeprefix(f".{package}." if package else ".")
