"""From the text of a .proto file (proto_schema_parser's tree) to a FileDescriptorProto, its types resolved.

protobuf's own pool resolves names and refuses what is wrong: fields with one number twice, types that are not there.
Custom options are not part of the descriptors: they are kept in the text alone.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from proto_schema_parser import ast

from kafkapy.registry.formats.parsed import SchemaSyntaxError
from kafkapy.registry.formats.proto_known import add_known

MAX_FIELD_NUMBER: Final = 536_870_911
MAX_ENUM_NUMBER: Final = 2_147_483_647
"""The largest numbers of fields and of enum values that Protobuf has: 2^29 - 1 and 2^31 - 1."""
SCALARS: Final = {
    name[len("TYPE_") :].lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_FILE_OPTIONS: Final = frozenset(
    ("java_package", "java_outer_classname", "java_multiple_files", "go_package", "csharp_namespace",
     "objc_class_prefix", "swift_prefix", "php_class_prefix", "php_namespace", "ruby_package", "deprecated",
     "cc_enable_arenas", "java_string_check_utf8",
     "optimize_for", "cc_generic_services", "java_generic_services", "py_generic_services")
)  # fmt: skip


def resolved_files(
    file: FileDescriptorProto, dependencies: Mapping[str, FileDescriptorProto]
) -> tuple[FileDescriptorProto, ...]:
    """Return a file, and after it its dependencies, with the full name of each type. Raises SchemaSyntaxError.

    `dependencies`: by the name of the import, each after those that it imports itself.
    """
    pool: Any = descriptor_pool.DescriptorPool()
    for name, each in dependencies.items():
        each.name = name
        add_known(pool, each.dependency, dependencies)
        _add(pool, each)
    add_known(pool, file.dependency, dependencies)
    for each in file.dependency:
        if not _has(pool, each):
            raise SchemaSyntaxError(f"{each} is imported, and no reference has this name")
    _add(pool, file)
    return tuple(_copy(pool, name) for name in (file.name, *dependencies))


def _copy(pool: Any, name: str) -> FileDescriptorProto:
    found = FileDescriptorProto()
    pool.FindFileByName(name).CopyToProto(found)
    return found


def _has(pool: Any, name: str) -> bool:
    with contextlib.suppress(KeyError):
        pool.FindFileByName(name)
        return True
    return False


def _add(pool: Any, file: FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise SchemaSyntaxError(str(error).partition(": ")[2] or str(error)) from error
    except Exception as error:  # protobuf's DecodeError, whose module differs by implementation
        raise SchemaSyntaxError(str(error)) from error


def file_of(tree: ast.File, name: str) -> FileDescriptorProto:
    """Return the descriptor of a parsed file, with types named as the text names them. Raises SchemaSyntaxError."""
    if tree.edition is not None:
        raise SchemaSyntaxError(f"edition {tree.edition} is not supported: syntax is proto2 or proto3")
    syntax = tree.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise SchemaSyntaxError(f"unknown syntax {syntax}")
    file = FileDescriptorProto(name=name, syntax=syntax)
    for each in tree.file_elements:
        match each:
            case ast.Package():
                file.package = each.name
            case ast.Import():
                if each.public:
                    file.public_dependency.append(len(file.dependency))
                file.dependency.append(each.name)
            case ast.Option() if each.name in _FILE_OPTIONS:
                _set_option(file.options, each)
            case ast.Message():
                _fill_message(file.message_type.add(), each, syntax)
            case ast.Enum():
                _fill_enum(file.enum_type.add(), each)
            case ast.Extension():
                _fill_extension(file, each, syntax)
            case ast.Service():
                _fill_service(file.service.add(), each)
    return file


def _fill_message(message: DescriptorProto, tree: ast.Message | ast.Group, syntax: str) -> None:
    message.name = tree.name
    for each in tree.elements:
        match each:
            case ast.Field():
                _fill_field(message.field.add(), each, syntax)
            case ast.MapField():
                _fill_map(message, each)
            case ast.Group():
                _fill_group(message, each, syntax)
            case ast.OneOf():
                _fill_oneof(message, each, syntax)
            case ast.Message():
                _fill_message(message.nested_type.add(), each, syntax)
            case ast.Enum():
                _fill_enum(message.enum_type.add(), each)
            case ast.Extension():
                _fill_extension(message, each, syntax)
            case ast.Reserved():
                for start, end in _ranges(each.ranges, MAX_FIELD_NUMBER):
                    message.reserved_range.add(start=start, end=end + 1)
                message.reserved_name.extend(each.names)
            case ast.ExtensionRange():
                for start, end in _ranges(each.ranges, MAX_FIELD_NUMBER):
                    message.extension_range.add(start=start, end=end + 1)
            case ast.Option() if each.name in ("deprecated", "message_set_wire_format"):
                _set_option(message.options, each)
    _add_presence(message)


def _add_presence(message: DescriptorProto) -> None:
    """Give each `optional` field of proto3 the oneof of its own that the compiler makes: they follow the others."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _fill_field(field: FieldDescriptorProto, tree: ast.Field, syntax: str) -> None:
    field.name, field.number = tree.name, _integer(tree.number)
    labels = {
        ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
        ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
    }
    cardinality = tree.cardinality
    field.label = (
        FieldDescriptorProto.LABEL_OPTIONAL
        if cardinality is None
        else labels.get(cardinality, FieldDescriptorProto.LABEL_OPTIONAL)
    )
    field.proto3_optional = syntax == "proto3" and cardinality is ast.FieldCardinality.OPTIONAL
    _set_type(field, tree.type)
    for each in tree.options:
        if each.name == "default":
            field.default_value = _option_text(each.value)
        elif each.name == "json_name":
            field.json_name = _option_text(each.value)
        elif each.name in ("packed", "deprecated", "lazy", "ctype", "jstype"):
            _set_option(field.options, each)


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _fill_map(message: DescriptorProto, tree: ast.MapField) -> None:
    entry = message.nested_type.add(name="".join(map(_capitalized, tree.name.split("_"))) + "Entry")
    entry.options.map_entry = True
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    _set_type(entry.field.add(name="key", number=1, label=optional), tree.key_type)
    _set_type(entry.field.add(name="value", number=2, label=optional), tree.value_type)
    message.field.add(
        name=tree.name,
        number=_integer(tree.number),
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=entry.name,
    )


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:]


def _fill_group(message: DescriptorProto, tree: ast.Group, syntax: str) -> FieldDescriptorProto:
    _fill_message(message.nested_type.add(), tree, syntax)
    field = message.field.add(type=FieldDescriptorProto.TYPE_GROUP, type_name=tree.name)
    _fill_field(field, ast.Field(tree.name.lower(), tree.number, tree.name, tree.cardinality), syntax)
    return field


def _fill_oneof(message: DescriptorProto, tree: ast.OneOf, syntax: str) -> None:
    index = len(message.oneof_decl)
    message.oneof_decl.add(name=tree.name)
    for each in tree.elements:
        if isinstance(each, ast.Field):
            field = message.field.add()
            _fill_field(field, each, syntax)
        elif isinstance(each, ast.Group):
            field = _fill_group(message, each, syntax)
        else:
            continue
        field.oneof_index = index


def _fill_extension(to: Any, tree: ast.Extension, syntax: str) -> None:
    for each in tree.elements:
        if isinstance(each, ast.Field):
            field = to.extension.add(extendee=tree.typeName)
            _fill_field(field, each, syntax)


def _fill_enum(enum: EnumDescriptorProto, tree: ast.Enum) -> None:
    enum.name = tree.name
    for each in tree.elements:
        match each:
            case ast.EnumValue():
                value = enum.value.add(name=each.name, number=_integer(each.number))
                for option in each.options:
                    if option.name == "deprecated":
                        _set_option(value.options, option)
            case ast.EnumReserved():
                for start, end in _ranges(each.ranges, MAX_ENUM_NUMBER):
                    enum.reserved_range.add(start=start, end=end)
                enum.reserved_name.extend(each.names)
            case ast.Option() if each.name in ("allow_alias", "deprecated"):
                _set_option(enum.options, each)


def _fill_service(service: ServiceDescriptorProto, tree: ast.Service) -> None:
    service.name = tree.name
    for each in tree.elements:
        if isinstance(each, ast.Method):
            service.method.add(
                name=each.name,
                input_type=each.input_type.type,
                output_type=each.output_type.type,
                client_streaming=each.input_type.stream,
                server_streaming=each.output_type.stream,
            )


def _ranges(texts: Sequence[str], largest: int) -> list[tuple[int, int]]:
    """Return "3", "5 to 7" and "100 to max" as numbers, both included."""
    found = []
    for text in texts:
        first, _, last = str(text).partition(" to ")
        start = _integer(first)
        found.append((start, start if not last else largest if last.strip() == "max" else _integer(last)))
    return found


def _integer(text: Any) -> int:
    try:
        return text if isinstance(text, int) else int(str(text).replace(" ", ""), 0)
    except ValueError as error:
        raise SchemaSyntaxError(f"{text} is no number") from error


def _set_option(options: Any, option: ast.Option) -> None:
    """Set an option that protobuf knows. Raises SchemaSyntaxError for a value that it cannot have."""
    field = options.DESCRIPTOR.fields_by_name[option.name]
    value = option.value
    try:
        if isinstance(value, ast.Identifier):
            value = field.enum_type.values_by_name[value.name].number
        setattr(options, option.name, value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SchemaSyntaxError(f"option {option.name} cannot be {option.value}") from error


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, ast.Identifier) else str(value)
