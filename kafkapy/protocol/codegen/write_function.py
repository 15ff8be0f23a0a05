"""Generates the Python source of the functions that write a struct in one layout.

A field that is not in the layout is dropped if it is ignorable; otherwise it must have its default value. KIP-482 and
the README of Kafka's message specifications.
"""

from kafkapy.protocol.codegen.layout import FIXED_CODES, FieldLayout, MessageLayouts, StructLayout
from kafkapy.protocol.codegen.spec import EMPTY_STRUCT, NONE, FieldSpec, MessageSpec
from kafkapy.protocol.codegen.text import HELPERS, LINE_LENGTH, Body, default_value, function_name, wrap


class WriteFunction:
    """Generates the function that writes one layout; `out` is the name of its output variable."""

    def __init__(self, layouts: MessageLayouts, layout: StructLayout, body: Body) -> None:
        self.layouts = layouts
        self.layout = layout
        self.body = body
        self.lines: list[str] = []
        self.indent = "    "
        self.pending: list[tuple[str, str]] = []
        self.out = "out"

    def function(self) -> list[str]:
        layout = self.layout
        self.body.use("Writer")
        header = self.header("write")
        for field in layout.missing:
            self.condition(_is_set(field, f"item.{field.attribute}", self.layouts.spec, self.body))
            self.emit(f'    raise {self.body.use("unwritable")}("{field.attribute}")')
        for field_layout in layout.in_order:
            self.field(field_layout)
        self.flush()
        tags = self.tags() if layout.is_flexible else self.no_tags()
        return [*tags, "", "", *header, *self.lines]

    def header(self, verb: str) -> list[str]:
        name = function_name(verb, self.layouts, self.layout)
        return wrap(f"def {name}(", ["out: Writer", f"item: {self.layout.spec.name}"], ") -> None:", "")

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def condition(self, terms: list[str]) -> None:
        line = f"if {' or '.join(terms)}:"
        if len(self.indent + line) <= LINE_LENGTH:
            self.emit(line)
            return
        self.emit("if (")
        self.emit(f"    {terms[0]}")
        for term in terms[1:]:
            self.emit(f"    or {term}")
        self.emit("):")

    def flush(self) -> None:
        if not self.pending:
            return
        codes = ["B" if code == "?" else code for _, code in self.pending]
        call = f"{self.out} += {self.body.format('pack', codes)}("
        self.lines += wrap(call, [value for value, _ in self.pending], ")", self.indent)
        self.pending = []

    def field(self, field: FieldLayout) -> None:
        spec, value = field.spec, f"item.{field.spec.attribute}"
        if spec.type in FIXED_CODES and not spec.is_array:
            self.pending.append((value, FIXED_CODES[spec.type]))
            return
        self.flush()
        can_be_null = spec.nullable != NONE and not self.is_known_set(field)
        if can_be_null and not field.is_nullable and spec.type != "records":
            self.emit(f"if {value} is None:")
            self.emit(f'    raise {self.body.use("null_value")}("{spec.attribute}")')
        if spec.is_array:
            self.array(field, value)
        elif field.struct is not None:
            self.struct(field, field.struct, value)
        else:
            self.sized_field(field, value)

    def sized_field(self, field: FieldLayout, value: str) -> None:
        spec, is_compact = field.spec, field.is_compact
        if spec.type != "string" or not field.is_nullable or self.is_known_set(field):
            self.sized(spec.type, value, is_compact=is_compact, is_nullable=field.is_nullable)
            return
        self.emit(f"if {value} is None:")  # as mostly: then no call
        self.emit(f"    {self.out}.append(0)" if is_compact else f'    {self.out} += b"\\xff\\xff"')
        self.emit("else:")
        self.emit(f"    {self.body.use('write_compact_string' if is_compact else 'write_string')}({self.out}, {value})")

    def sized(self, kind: str, value: str, *, is_compact: bool, is_nullable: bool) -> None:
        helper = "write_" + ("compact_" if is_compact else "") + ("nullable_" if is_nullable else "") + HELPERS[kind]
        self.emit(f"{self.body.use(helper)}({self.out}, {value})")

    def struct(self, field: FieldLayout, layout: StructLayout, value: str) -> None:
        call = f"{function_name('write', self.layouts, layout)}({self.out}, {value})"
        if not field.is_nullable:
            self.emit(call)
            return
        if self.is_known_set(field):
            self.emit(f"{self.out}.append(1)")
            self.emit(call)
            return
        self.emit(f"if {value} is None:")
        self.emit(f"    {self.out}.append({'0' if field.is_tagged else '0xFF'})")
        self.emit("else:")
        self.emit(f"    {self.out}.append(1)")
        self.emit(f"    {call}")

    def is_known_set(self, field: FieldLayout) -> bool:
        """Whether the code generated before this ensures that the field is not null."""
        return False

    def array(self, field: FieldLayout, value: str) -> None:
        if not field.is_nullable or self.is_known_set(field):
            self.elements(field, value)
            return
        self.emit(f"if {value} is None:")
        self.emit(f"    {self.out}.append(0)" if field.is_compact else f'    {self.out} += b"\\xff\\xff\\xff\\xff"')
        self.emit("else:")
        outer, self.indent = self.indent, self.indent + "    "
        self.elements(field, value)
        self.indent = outer

    def elements(self, field: FieldLayout, value: str) -> None:
        code = FIXED_CODES.get(field.spec.type)
        is_ints = code is not None and code != "16s"
        code = "B" if code == "?" else code
        if is_ints and field.is_compact:
            self.emit(f'{self.out} += {self.body.use("compact_ints")}({value}, "{code}")')
            return
        if field.is_compact:
            self.emit(f"{self.body.use('write_uvarint')}({self.out}, len({value}) + 1)")
        else:
            self.emit(f"{self.out} += {self.body.format('pack', 'i')}(len({value}))")
        if is_ints:
            self.emit(f'{self.body.use("write_ints")}({self.out}, {value}, "{code}")')
            return
        name = f"{field.spec.attribute}_item"
        self.emit(f"for {name} in {value}:")
        outer, self.indent = self.indent, self.indent + "    "
        if field.struct is not None:
            self.emit(f"{function_name('write', self.layouts, field.struct)}({self.out}, {name})")
        elif code == "16s":
            self.emit(f"{self.out} += {self.body.format('pack', ['16s'])}({name})")
        else:
            self.sized(field.spec.type, name, is_compact=field.is_compact, is_nullable=False)
        self.indent = outer

    def no_tags(self) -> list[str]:
        """Emit the refusal of tagged fields in a version that is not flexible."""
        self.emit("if item.unknown_tagged_fields:")
        self.emit(f'    raise {self.body.use("unwritable")}("unknown_tagged_fields")')
        return []

    def tags(self) -> list[str]:
        """Emit the write of the tagged fields; return the function that writes the ones in this layout."""
        spec = self.layouts.spec
        terms = ["item.unknown_tagged_fields"]
        for field in self.layout.tagged:
            terms += _is_set(field.spec, f"item.{field.spec.attribute}", spec, self.body)
        self.condition(terms)
        name = function_name("write_tags_of", self.layouts, self.layout)
        if self.layout.tagged:
            self.emit(f"    {name}(out, item)")
        else:
            self.body.use("write_tag_section")
            self.emit("    write_tag_section(out, {}, item.unknown_tagged_fields)")
        self.emit("else:")
        self.emit("    out.append(0)")
        return WriteTagsFunction(self.layouts, self.layout, self.body).function() if self.layout.tagged else []


class WriteTagsFunction(WriteFunction):
    """Generates the function that writes the tagged fields of one layout that differ from their defaults."""

    def __init__(self, layouts: MessageLayouts, layout: StructLayout, body: Body) -> None:
        super().__init__(layouts, layout, body)
        self.out = "value"

    def function(self) -> list[str]:
        self.emit("tags: dict[int, bytes] = {}")
        for field in self.layout.tagged:
            self.condition(_is_set(field.spec, f"item.{field.spec.attribute}", self.layouts.spec, self.body))
            outer, self.indent = self.indent, self.indent + "    "
            self.value(field)
            self.indent = outer
        self.emit(f"{self.body.use('write_tag_section')}(out, tags, item.unknown_tagged_fields)")
        return ["", "", *self.header("write_tags_of"), *self.lines]

    def value(self, field: FieldLayout) -> None:
        """Emit the bytes of one tagged field."""
        spec, item, tag = field.spec, f"item.{field.spec.attribute}", f"tags[{field.spec.tag}]"
        code = FIXED_CODES.get(spec.type)
        code = "B" if code == "?" else code
        if code is not None and not spec.is_array:
            self.emit(f"{tag} = {self.body.format('pack', [code])}({item})")
        elif code not in (None, "16s") and self.is_known_set(field):
            self.emit(f'{tag} = {self.body.use("compact_ints")}({item}, "{code}")')
        else:
            self.emit("value = Writer()")
            self.field(field)
            self.emit(f"{tag} = value.joined()")

    def is_known_set(self, field: FieldLayout) -> bool:
        return field.spec.default is None


def _is_set(field: FieldSpec, value: str, spec: MessageSpec, body: Body) -> list[str]:
    """Return the terms of an `or` expression that is true if the field differs from its default."""
    if field.default is None:
        return [f"{value} is not None"]
    if field.default is EMPTY_STRUCT:
        terms = [f"{value} is None"] if field.nullable != NONE else []
        for inner in spec.structs[field.type].fields:
            terms += _is_set(inner, f"{value}.{inner.attribute}", spec, body)
        return [*terms, f"{value}.unknown_tagged_fields"]
    if isinstance(field.default, bool):
        return [f"not {value}" if field.default else value]
    return [f"{value} != {default_value(field, body)}"]
