"""Files that any .proto may import without a reference: google/protobuf/*, google/type/*, confluent/*."""

import contextlib
import importlib
from collections.abc import Container, Iterable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

STRING: Final = FieldDescriptorProto.TYPE_STRING
BYTES: Final = FieldDescriptorProto.TYPE_BYTES
UINT32: Final = FieldDescriptorProto.TYPE_UINT32
INT32: Final = FieldDescriptorProto.TYPE_INT32
INT64: Final = FieldDescriptorProto.TYPE_INT64

_TYPES: Final[dict[str, tuple[str, tuple[tuple[str, int], ...]]]] = {
    "confluent/type/decimal.proto": (
        "confluent.type.Decimal",
        (("value", BYTES), ("precision", UINT32), ("scale", INT32)),
    ),
    "google/type/date.proto": ("google.type.Date", (("year", INT32), ("month", INT32), ("day", INT32))),
    "google/type/timeofday.proto": (
        "google.type.TimeOfDay",
        (("hours", INT32), ("minutes", INT32), ("seconds", INT32), ("nanos", INT32)),
    ),
    "google/type/money.proto": ("google.type.Money", (("currency_code", STRING), ("units", INT64), ("nanos", INT32))),
}  # fmt: skip
"""Files with one message: its full name, and its fields in the order of their numbers."""
META: Final = "confluent/meta.proto"
META_EXTENSION: Final = 1088
"""What protobuf's registry of extensions has for Confluent: options in stored schemas are encoded with it."""


def is_known(name: str) -> bool:
    return name in _TYPES or name == META or name.startswith("google/protobuf/")


def add_known(pool: Any, names: Iterable[str], given: Container[str]) -> None:
    """Add the known files among `names` to a pool, unless they are given as references."""
    for name in names:
        if name in given:
            continue
        for file in known_file(name):
            with contextlib.suppress(TypeError):  # it is there already
                pool.AddSerializedFile(file)


def known_file(name: str) -> list[bytes]:
    """Return the descriptors of a known file, after those that it imports; none if it is not known."""
    if name.startswith("google/protobuf/"):
        with contextlib.suppress(ImportError, AttributeError):
            module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            own: bytes = module.DESCRIPTOR.serialized_pb
            imported = [each for below in module.DESCRIPTOR.dependencies for each in known_file(below.name)]
            return [*imported, own]
        return []
    if name == META:
        return [*known_file("google/protobuf/descriptor.proto"), _meta()]
    if name in _TYPES:
        return [_of_one_message(name, *_TYPES[name])]
    return []


def _of_one_message(name: str, full_name: str, fields: tuple[tuple[str, int], ...]) -> bytes:
    package, _, message_name = full_name.rpartition(".")
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    message = file.message_type.add(name=message_name)
    for number, (field, kind) in enumerate(fields, 1):
        message.field.add(name=field, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    return bytes(file.SerializeToString())


def _meta() -> bytes:
    """Return confluent/meta.proto: a doc, parameters and tags of files, messages, fields, enums and their values."""
    file = FileDescriptorProto(name=META, package="confluent", syntax="proto3")
    file.dependency.append("google/protobuf/descriptor.proto")
    message = file.message_type.add(name="Meta")
    optional, repeated = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
    message.field.add(name="doc", number=1, type=STRING, label=optional)
    entry = message.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=STRING, label=optional)
    entry.field.add(name="value", number=2, type=STRING, label=optional)
    message.field.add(
        name="params",
        number=2,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".confluent.Meta.ParamsEntry",
        label=repeated,
    )
    message.field.add(name="tags", number=3, type=STRING, label=repeated)
    # A file that imports this one stores the options by META_EXTENSION, whatever their names are here.
    for kind in ("File", "Message", "Field", "Enum", "EnumValue"):
        lower = "enum_value" if kind == "EnumValue" else kind.lower()
        file.extension.add(
            name=f"{lower}_meta",
            number=META_EXTENSION,
            extendee=f".google.protobuf.{kind}Options",
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            label=optional,
        )
    return bytes(file.SerializeToString())
