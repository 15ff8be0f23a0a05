"""Generates all files from the specs, and writes them or compares them with the checked-in files."""

import sys
from pathlib import Path

from kafkapy.protocol.codegen.emit import emit_module
from kafkapy.protocol.codegen.spec import MessageSpec, SpecError, load_specs
from kafkapy.protocol.codegen.tables import emit_api_table, emit_error_codes, emit_field_table

PROJECT = Path(__file__).resolve().parents[3]
SPECS = PROJECT / "protocol_specs"
PROTOCOL = PROJECT / "kafkapy" / "protocol"


def generate(specs_directory: Path) -> dict[str, str]:
    """Return the content of every generated file by its path relative to kafkapy/protocol. Raises SpecError."""
    specs = load_specs(specs_directory)
    files = {f"messages/{spec.module}.py": emit_module(spec) for spec in specs}
    files["messages/__init__.py"] = '"""Generated: a module per message; see kafkapy.protocol.codegen."""\n'
    files["field_table.py"] = emit_field_table(specs)
    files |= _generate_facts(specs_directory, specs)
    return files


def _generate_facts(specs_directory: Path, specs: list[MessageSpec]) -> dict[str, str]:
    error_codes = _read_table(specs_directory / "error_codes.tsv")
    api_versions = _read_table(specs_directory / "api_versions.tsv")
    return {
        "error_code.py": emit_error_codes(error_codes),
        "api_table.py": emit_api_table(api_versions, specs),
    }


def _read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a tab-separated file with a header line."""
    header, *rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def main(arguments: list[str]) -> int:
    """Write the generated files, or with --check print which of them differ; return the exit status."""
    try:
        files = generate(SPECS)
    except SpecError as error:
        print(error, file=sys.stderr)
        return 1
    stale = [path for path in (PROTOCOL / "messages").glob("*.py") if f"messages/{path.name}" not in files]
    changed = [name for name, text in files.items() if _current(PROTOCOL / name) != text]
    if "--check" in arguments:
        for name in [*changed, *(f"messages/{path.name}" for path in stale)]:
            print(f"kafkapy/protocol/{name} is not what protocol_specs/ says: run python -m kafkapy.protocol.codegen")
        return 1 if changed or stale else 0
    for path in stale:
        path.unlink()
    for name in changed:
        (PROTOCOL / name).write_text(files[name], "utf-8")
    print(f"{len(files)} files, {len(changed)} written, {len(stale)} deleted")
    return 0


def _current(path: Path) -> str | None:
    return path.read_text("utf-8") if path.exists() else None
