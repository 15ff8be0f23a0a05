"""From a FileDescriptorProto to the tree of a .proto text: serializers of Python register descriptors in Base64."""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from proto_schema_parser import ast

from kafkapy.registry.formats.proto_descriptors import MAX_ENUM_NUMBER, MAX_FIELD_NUMBER

_SCALARS: Final = {number: name[len("TYPE_") :].lower() for name, number in FieldDescriptorProto.Type.items()}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: ast.FieldCardinality.OPTIONAL,
    FieldDescriptorProto.LABEL_REQUIRED: ast.FieldCardinality.REQUIRED,
    FieldDescriptorProto.LABEL_REPEATED: ast.FieldCardinality.REPEATED,
}


def tree_of(file: FileDescriptorProto) -> ast.File:
    """Return the tree of a file: its options, messages, enums, extensions and services."""
    is_proto3 = file.syntax == "proto3"
    parts: list[Any] = [ast.Package(file.package)] if file.package else []
    public = set(file.public_dependency)
    parts += [ast.Import(name, public=index in public) for index, name in enumerate(file.dependency)]
    parts += _options(file.options)
    parts += [_message(each, is_proto3) for each in file.message_type]
    parts += [_enum(each) for each in file.enum_type]
    parts += _extensions(file.extension, is_proto3)
    for service in file.service:
        methods: list[Any] = [
            ast.Method(
                each.name,
                ast.MessageType(each.input_type, each.client_streaming),
                ast.MessageType(each.output_type, each.server_streaming),
                list(_options(each.options)),
            )
            for each in service.method
        ]
        parts.append(ast.Service(service.name, methods))
    return ast.File(syntax=file.syntax or "proto2", file_elements=parts)


def _message(message: DescriptorProto, is_proto3: bool) -> ast.Message:
    # a descriptor has more messages than the text: an entry message for each map, one for each group
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    groups = {
        each.type_name.rpartition(".")[2] for each in message.field if each.type == FieldDescriptorProto.TYPE_GROUP
    }
    parts: list[Any] = [ast.Reserved(_ranges(message.reserved_range, MAX_FIELD_NUMBER, 1), [])] * bool(
        message.reserved_range
    )
    if message.reserved_name:
        parts.append(ast.Reserved([], list(message.reserved_name)))
    parts += _options(message.options)
    oneofs = [ast.OneOf(each.name) for each in message.oneof_decl]
    # `optional` of proto3 is a oneof of one field in a descriptor, which the text does not have
    synthetic = {each.oneof_index for each in message.field if each.proto3_optional}
    for field in message.field:
        in_oneof = field.HasField("oneof_index") and not field.proto3_optional
        entry = maps.get(field.type_name.rpartition(".")[2])
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            parts.append(_group(field, message, is_proto3))
        elif entry is not None:
            key, value = entry.field
            parts.append(ast.MapField(field.name, field.number, _type(key), _type(value), _field_options(field)))
        elif in_oneof:
            oneofs[field.oneof_index].elements.append(_field(field, is_proto3, label=None))
        else:
            parts.append(_field(field, is_proto3, label=_LABELS[field.label]))
    parts += [each for index, each in enumerate(oneofs) if index not in synthetic]
    if message.extension_range:
        parts.append(ast.ExtensionRange(_ranges(message.extension_range, MAX_FIELD_NUMBER, 1)))
    parts += _extensions(message.extension, is_proto3)
    parts += [
        _message(each, is_proto3) for each in message.nested_type if each.name not in maps and each.name not in groups
    ]
    parts += [_enum(each) for each in message.enum_type]
    return ast.Message(message.name, parts)


def _group(field: FieldDescriptorProto, message: DescriptorProto, is_proto3: bool) -> ast.Group:
    name = field.type_name.rpartition(".")[2]
    (described,) = (each for each in message.nested_type if each.name == name)
    return ast.Group(name, field.number, _LABELS[field.label], _message(described, is_proto3).elements)


def _field(field: FieldDescriptorProto, is_proto3: bool, label: ast.FieldCardinality | None) -> ast.Field:
    if is_proto3 and label is ast.FieldCardinality.OPTIONAL and not field.proto3_optional:
        label = None
    return ast.Field(field.name, field.number, _type(field), label, _field_options(field))


def _type(field: FieldDescriptorProto) -> str:
    return str(field.type_name or _SCALARS[field.type])


def _field_options(field: FieldDescriptorProto) -> list[ast.Option]:
    found = []
    if field.HasField("default_value"):
        is_text = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
        value: Any = field.default_value if is_text else ast.Identifier(field.default_value)
        found.append(ast.Option("default", value))
    if field.json_name and field.json_name != _json_name(field.name):
        found.append(ast.Option("json_name", field.json_name))
    return [*found, *_options(field.options)]


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _enum(enum: EnumDescriptorProto) -> ast.Enum:
    parts: list[Any] = []
    if enum.reserved_range:
        parts.append(ast.EnumReserved(_ranges(enum.reserved_range, MAX_ENUM_NUMBER, 0)))
    if enum.reserved_name:
        parts.append(ast.EnumReserved([], list(enum.reserved_name)))
    parts += _options(enum.options)
    parts += [ast.EnumValue(each.name, each.number, _options(each.options)) for each in enum.value]
    return ast.Enum(enum.name, parts)


def _extensions(fields: Sequence[FieldDescriptorProto], is_proto3: bool) -> list[ast.Extension]:
    found: dict[str, ast.Extension] = {}
    for each in fields:
        extension = found.setdefault(each.extendee, ast.Extension(each.extendee))
        extension.elements.append(_field(each, is_proto3, _LABELS[each.label]))
    return list(found.values())


def _ranges(ranges: Sequence[Any], largest: int, beyond: int) -> list[str]:
    """`beyond`: by how much the end lies beyond the last number."""
    found = []
    for each in ranges:
        last = each.end - beyond
        shown = "max" if last >= largest else str(last)
        found.append(str(each.start) if last == each.start else f"{each.start} to {shown}")
    return found


def _options(options: Any) -> list[ast.Option]:
    """Return the options that protobuf knows; map_entry is no option of a text."""
    found = []
    for field, value in options.ListFields():
        if field.is_extension or field.name in ("map_entry", "uninterpreted_option") or field.message_type is not None:
            continue
        shown: Any = value
        if field.enum_type is not None:
            shown = ast.Identifier(field.enum_type.values_by_number[value].name)
        found.append(ast.Option(field.name, shown))
    return found
