"""Protobuf schemas of the registry: the text of a .proto file, or a FileDescriptorProto in Base64."""

import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from kafkapy.registry.formats.parsed import SchemaSyntaxError
from kafkapy.registry.formats.proto_descriptors import file_of, resolved_files
from kafkapy.registry.formats.proto_rules import COMPATIBLE, ProtoFiles, differences
from kafkapy.registry.formats.proto_text import text_of
from kafkapy.registry.formats.proto_tree import tree_of
from kafkapy.registry.model import SchemaReference

DEFAULT_NAME: Final = "default.proto"


class ProtobufSchema:
    """formats.parsed.ParsedSchema."""

    kind = "PROTOBUF"

    def __init__(
        self, text: str, references: tuple[SchemaReference, ...] = (), resolved: Mapping[str, str] | None = None
    ) -> None:
        """Raises SchemaSyntaxError."""
        self.references = references
        self.resolved = dict(resolved or {})
        self._tree = _parse(text)
        imported = {name: file_of(_parse(each), name) for name, each in self.resolved.items()}
        self._file, *others = resolved_files(file_of(self._tree, DEFAULT_NAME), imported)
        self._files = ProtoFiles(self._file, tuple(others))
        self.canonical = text_of(self._tree)

    def normalized(self) -> "ProtobufSchema":
        return ProtobufSchema(text_of(self._tree, normalized=True), self.references, self.resolved)

    def validate_as_new(self) -> None:
        """Do nothing: the constructor checks all there is."""

    def formatted(self, style: str) -> str:
        if style == "serialized":
            return base64.b64encode(self._file.SerializeToString()).decode()
        if style == "ignore_extensions":
            return text_of(_without_extensions(self._tree))
        return self.canonical

    def backward_errors(self, previous: "ProtobufSchema", *, lenient: bool) -> list[str]:
        found = differences(previous._files, self._files)
        return [str(each) for each in found if each.kind not in COMPATIBLE]

    def has_top_level_field(self, name: str) -> bool:
        messages = self._file.message_type
        return bool(messages) and any(each.name == name for each in messages[0].field)


def _without_extensions(tree: ast.File) -> ast.File:
    kept: list[Any] = [each for each in tree.file_elements if not isinstance(each, ast.Extension)]
    return ast.File(tree.syntax, tree.edition, kept)


def _parse(text: str) -> ast.File:
    """Return the tree of a text, or of the descriptor that it is in Base64. Raises SchemaSyntaxError."""
    descriptor = _descriptor(text)
    if descriptor is not None:
        return tree_of(descriptor)
    try:
        return Parser(setup_lexer=_listening, setup_parser=_listening).parse(text)
    except SchemaSyntaxError:
        raise
    except RecursionError as error:
        raise SchemaSyntaxError("it is nested too deeply") from error
    except Exception as error:  # the parser's tree of a wrong text has holes: AttributeError, TypeError, ...
        raise SchemaSyntaxError(f"Could not parse Protobuf - {type(error).__name__}: {error}") from error


def _descriptor(text: str) -> FileDescriptorProto | None:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    with contextlib.suppress(Exception):  # protobuf's DecodeError, whose module differs by implementation
        return FileDescriptorProto.FromString(data)
    return None


class _Listener:
    """Raises at the first error of the parser, which else would print it and continue."""

    def syntaxError(self, _recognizer: Any, _symbol: Any, line: int, column: int, message: str, _error: Any) -> None:
        raise SchemaSyntaxError(f"Syntax error at {line}:{column}: {message[:300]}")

    def reportAmbiguity(self, *_: Any) -> None: ...

    def reportAttemptingFullContext(self, *_: Any) -> None: ...

    def reportContextSensitivity(self, *_: Any) -> None: ...


def _listening(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Listener())
