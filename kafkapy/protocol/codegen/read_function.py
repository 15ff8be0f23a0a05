"""Generates the Python source of the functions that read a struct in one layout."""

from kafkapy.protocol.codegen.layout import FIXED_CODES, FIXED_SIZES, FieldLayout, MessageLayouts, StructLayout
from kafkapy.protocol.codegen.text import ANNOTATIONS, HELPERS, LINE_LENGTH, Body, default_value, function_name, wrap


class ReadFunction:
    """Generates the function that reads one layout; `data` and `position` are the names of its input variables."""

    def __init__(self, layouts: MessageLayouts, layout: StructLayout, body: Body) -> None:
        self.layouts = layouts
        self.layout = layout
        self.body = body
        self.lines: list[str] = []
        self.indent = "    "
        self.pending: list[tuple[str, str]] = []
        self.data = "data"
        self.position = "position"

    def function(self) -> list[str]:
        layout, name = self.layout, self.layout.spec.name
        self.body.names |= {"COMPILED", "Data", "ElementBudget", "new"}
        opening = f"def {function_name('read', self.layouts, layout)}("
        arguments = ["data: Data", "position: int", "budget: ElementBudget"]
        header = wrap(opening, arguments, f") -> tuple[{name}, int]:", "")
        self.new_item()
        for field in layout.in_order:
            self.field(field)
        if layout.is_flexible:
            self.pending.append(("tag_count", "B"))
        self.flush()
        self.absent_fields()
        tags = self.tags() if layout.is_flexible else []
        self.indent = "    "
        self.emit("return item, position")
        return [*tags, "", "", *header, *self.lines]

    def new_item(self) -> None:
        name = self.layout.spec.name
        parts = [f"{name}()", "if _IS_COMPILED", f"else new({name})"]
        line = f"item = {' '.join(parts)}"
        if len(self.indent + line) <= LINE_LENGTH:
            self.emit(line)
            return
        together = "    " + " ".join(parts)
        self.emit("item = (")
        for inner in [together] if len(self.indent + together) <= LINE_LENGTH else [f"    {part}" for part in parts]:
            self.emit(inner)
        self.emit(")")

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def emit_call(self, targets: str, function: str, arguments: list[str]) -> None:
        self.lines += wrap(f"{targets} = {function}(", arguments, ")", self.indent, trailing_comma=False)

    def flush(self) -> None:
        """Emit one read of all pending fixed-size fields."""
        if not self.pending:
            return
        targets = [target for target, _ in self.pending]
        codes = [code for _, code in self.pending]
        if codes == ["B"]:
            self.emit(f"{targets[0]} = {self.data}[{self.position}]")
        else:
            call = f"{self.body.format('unpack', codes)}({self.data}, {self.position})"
            line = f"{', '.join(targets)} = {call}" if len(targets) > 1 else f"({targets[0]},) = {call}"
            if len(self.indent + line) <= LINE_LENGTH:
                self.emit(line)
            else:
                self.lines += wrap("(", targets, f") = {call}", self.indent)
        self.emit(f"{self.position} += {sum(FIXED_SIZES[code] for code in codes)}")
        self.pending = []

    def field(self, field: FieldLayout) -> None:
        spec, target = field.spec, f"item.{field.spec.attribute}"
        if spec.is_array:
            self.array(field, target)
        elif spec.type in FIXED_CODES:
            self.pending.append((target, FIXED_CODES[spec.type]))
        elif field.struct is not None:
            self.struct(field, field.struct, target)
        else:
            self.sized(spec.type, target, is_compact=field.is_compact, is_nullable=field.is_nullable)

    def sized(self, kind: str, target: str, *, is_compact: bool, is_nullable: bool) -> None:
        """Emit the read of a string, bytes or records; the start of its length is read with the pending fields."""
        helper = ("compact_" if is_compact else "") + ("nullable_" if is_nullable else "") + HELPERS[kind]
        self.body.use(helper)
        data, position = self.data, self.position
        if is_compact and not self.pending:
            self.emit(f"{target}, {position} = {helper}({data}, {position} + 1, {data}[{position}])")
            return
        self.pending.append(("size", "B" if is_compact else "h" if kind == "string" else "i"))
        self.flush()
        self.emit(f"{target}, {position} = {helper}({data}, {position}, size)")

    def struct(self, field: FieldLayout, layout: StructLayout, target: str) -> None:
        """Emit the read of a struct. A nullable one has a marker before it: negative for null, or 0 if it is tagged."""
        if field.is_nullable:
            self.pending.append(("marker", "B" if field.is_tagged else "b"))
        self.flush()
        if not field.is_nullable:
            self.call(layout, target)
            return
        self.emit("if marker == 0:" if field.is_tagged else "if marker < 0:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        outer, self.indent = self.indent, self.indent + "    "
        self.call(layout, target)
        self.indent = outer

    def call(self, layout: StructLayout, target: str) -> None:
        function = function_name("read", self.layouts, layout)
        self.emit_call(f"{target}, {self.position}", function, [self.data, self.position, "budget"])

    def array(self, field: FieldLayout, target: str) -> None:
        self.pending.append(("count", "B" if field.is_compact else "i"))
        self.flush()
        if not field.is_nullable:
            self.elements(field, target)
            return
        self.emit(f"if count == {0 if field.is_compact else -1}:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        outer, self.indent = self.indent, self.indent + "    "
        self.elements(field, target)
        self.indent = outer

    def elements(self, field: FieldLayout, target: str) -> None:
        data, position = self.data, self.position
        if field.is_compact:
            self.body.use("compact_count")
            self.emit(f"count, {position} = compact_count({data}, {position}, count, {field.element_bytes}, budget)")
        else:
            self.body.use("check_count")
            self.emit(f"check_count({data}, {position}, count, {field.element_bytes}, budget)")
        if field.spec.type in FIXED_CODES:
            self.fixed_elements(FIXED_CODES[field.spec.type], target)
            return
        name = field.spec.attribute
        self.emit(f"{name}_list: list[{ANNOTATIONS.get(field.spec.type, field.spec.type)}] = []")
        self.emit("for _ in range(count):")
        outer, self.indent = self.indent, self.indent + "    "
        if field.struct is not None:
            self.call(field.struct, f"{name}_item")
        else:
            self.sized(field.spec.type, f"{name}_item", is_compact=field.is_compact, is_nullable=False)
        self.emit(f"{name}_list.append({name}_item)")
        self.indent = outer
        self.emit(f"{target} = {name}_list")

    def fixed_elements(self, code: str, target: str) -> None:
        data, position = self.data, self.position
        if code == "16s":
            self.emit(f"{target} = {self.body.use('uuid_list')}({data}, {position}, count)")
        else:
            self.emit(f'{target} = {self.body.use("int_list")}({data}, {position}, count, "{code}")')
        self.emit(f"{position} += {FIXED_SIZES[code]} * count" if FIXED_SIZES[code] > 1 else f"{position} += count")

    def absent_fields(self) -> None:
        read = {field.spec for field in self.layout.in_order}
        for field in self.layout.spec.fields:
            if field not in read:
                self.emit(f"item.{field.attribute} = {default_value(field, self.body)}")
        self.emit("item.unknown_tagged_fields = None")

    def tags(self) -> list[str]:
        """Emit the read of the tagged fields; return the function that reads the ones in this layout."""
        self.emit("if tag_count:")
        self.body.use("tag_section")
        if not self.layout.tagged:
            self.emit("    item.unknown_tagged_fields, position = tag_section(data, position, tag_count, budget)")
            return []
        name = function_name("read_tags_of", self.layouts, self.layout)
        self.indent += "    "
        self.emit_call("position", name, ["item", "data", "position", "tag_count", "budget"])
        return ReadTagsFunction(self.layouts, self.layout, self.body).function()


class ReadTagsFunction(ReadFunction):
    """Generates the function that reads the known tagged fields of one layout, each from its own bytes."""

    def __init__(self, layouts: MessageLayouts, layout: StructLayout, body: Body) -> None:
        super().__init__(layouts, layout, body)
        self.data = "value"
        self.position = "end"

    def function(self) -> list[str]:
        name = function_name("read_tags_of", self.layouts, self.layout)
        class_name = self.layout.spec.name
        self.emit("tags, position = tag_section(data, position, tag_count, budget)")
        self.emit("if tags is None:")
        self.emit("    return position")
        for field in self.layout.tagged:
            self.tag(field)
        self.emit("item.unknown_tagged_fields = tags or None")
        self.emit("return position")
        arguments = [f"item: {class_name}", "data: Data", "position: int", "tag_count: int", "budget: ElementBudget"]
        return ["", "", *wrap(f"def {name}(", arguments, ") -> int:", ""), *self.lines]

    def tag(self, field: FieldLayout) -> None:
        self.emit(f"value = tags.pop({field.spec.tag}, None)")
        self.emit("if value is not None:")
        outer, self.indent = self.indent, self.indent + "    "
        self.emit("end = 0")
        self.field(field)
        self.flush()
        self.emit(f"{self.body.use('check_tag_end')}({field.spec.tag}, value, end)")
        self.indent = outer
