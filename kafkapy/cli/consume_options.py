"""The command line of `kafkapy consume`."""

from typing import Annotated

import typer

from kafkapy.cli.client import DEFAULT_SERVER, ClientConfig, Server
from kafkapy.cli.received import FORMAT_HELP
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

KNOWN_FORMATS = (
    "text, json, hex, base64, short, integer, long, float, double, boolean, uuid, messagepack, avro, json-schema, "
    "protobuf, internal, or auto, which decides by the data"
)
MAX_OFFSET = INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The arguments and options of `kafkapy consume`."""

    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", show_default=False, help="Topics to read, or patterns: 'orders-*'."),
    ]
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", "-B", help="Begin at the first record; without, only new records are shown."),
    ] = False
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Read this partition; may be repeated. Without, all are read."),
    ] = None
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            min=-MAX_OFFSET,
            max=MAX_OFFSET,
            help="Begin at this offset of each partition; a negative one counts from the end.",
        ),
    ] = None
    from_time: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Begin at the first record of this time: -1h, 2026-01-31T12:00Z."),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop before the first record of this time, or later."),
    ] = None
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this consumer group, and commit offsets.")
    ] = None
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many records.")
    ] = None
    until_end: Annotated[bool, typer.Option("--until-end", "-e", help="Stop at the end of every partition.")] = False
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Stop when no record has come for this long.")
    ] = None
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed (no open or aborted transactions) or read_uncommitted.")
    ] = "read_committed"
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print the key and this text before each value.")
    ] = None
    line_format: Annotated[str | None, typer.Option("--format", metavar="PATTERN", help=FORMAT_HELP)] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only records with this key.")] = None
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="REGEX", help="Only records whose key or value has a match, as decoded."),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only records with this header; may be repeated."),
    ] = None
    json_path: Annotated[
        list[str] | None,
        typer.Option(
            "--jsonpath", metavar="PATH", help="Only values that have it, or meet it: '$.price > 100' (repeat)."
        ),
    ] = None
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print each record as a JSON object, from which produce --json restores it."),
    ] = False
    key_format: Annotated[
        str | None,
        typer.Option(
            "--key-format", help=f"How keys are decoded: {KNOWN_FORMATS}. Without: text; auto with --schema-registry."
        ),
    ] = None
    value_format: Annotated[
        str | None, typer.Option("--value-format", help="How values are decoded; the formats of --key-format.")
    ] = None
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry", metavar="URL|DIR", help="Where schemas are: a registry, or NUMBER.avsc, .json, .desc."
        ),
    ] = None
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None

    @property
    def is_filtered(self) -> bool:
        return self.key is not None or self.grep is not None or bool(self.header or self.json_path)
