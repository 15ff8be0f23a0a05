"""`kafkapy produce TOPIC`: produces lines of standard input, or of files, as records."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.cli.client import (
    DEFAULT_SERVER,
    ClientConfig,
    Server,
    client_properties,
    confluent,
    failures,
    with_java_defaults,
)
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import INTERRUPTED, fail, note, reason_of
from kafkapy.cli.line_records import LineReader, encoder_of, reader_of, with_nulls
from kafkapy.cli.moments import moment_ms
from kafkapy.cli.options import takes
from kafkapy.cli.reachable import check_reachable
from kafkapy.cli.sender import FLUSH_S, INTERRUPTED_FLUSH_S, Sender
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted
from kafkapy.types import INT32_MAX

PROMPT = "> "
STDIN = Path("-")
MAX_PARTITION = INT32_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """The arguments and options of `kafkapy produce`."""

    topic: Annotated[str, typer.Argument(show_default=False, help="The topic to write to.")]
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]", help="Files to read lines from; without, or for -, standard input is read."
        ),
    ] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="The text between key and value in each line.")
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."),
    ] = None
    partition: Annotated[
        int,
        typer.Option(
            "--partition",
            "-p",
            metavar="PARTITION",
            min=-1,
            max=MAX_PARTITION,
            help="The partition; -1 chooses by key, or at random if there is none.",
        ),
    ] = -1
    compression: Annotated[str, typer.Option("--compression", help="The codec: none, gzip, snappy, lz4 or zstd.")] = (
        "none"
    )
    acks: Annotated[
        str,
        typer.Option("--acks", help="Which replicas must have a record before it counts as delivered: 0, 1 or all."),
    ] = "all"
    line_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="PATTERN",
            help="How a line reads, as consume --format: %k key, %v value, %h headers, %p partition, %d time, %T ms.",
        ),
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="The time of every record: -1h, 2026-01-31T12:00Z."),
    ] = None
    null: Annotated[
        str | None,
        typer.Option("--null", metavar="TEXT", help="Keys and values that are this text are null: tombstones."),
    ] = None
    key_schema: Annotated[
        str | None, typer.Option("--key-schema", metavar="ID|SUBJECT", help="Encode keys, JSON in the lines, by this.")
    ] = None
    value_schema: Annotated[
        str | None,
        typer.Option("--value-schema", metavar="ID|SUBJECT", help="Encode values, JSON in the lines, by this schema."),
    ] = None
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry", metavar="URL|DIR", help="Where schemas are: a registry, or NUMBER.avsc, .json, .desc."
        ),
    ] = None
    create: Annotated[
        bool | None,
        typer.Option(
            "--create/--no-create",
            show_default=False,
            help="Let the broker create a missing topic, or refuse it; without, it is refused on a terminal.",
        ),
    ] = None
    is_json: Annotated[
        bool, typer.Option("--json", help="A line is an object, as consume --json prints it; exact, if it did.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing on success.")] = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(ProduceOptions)
def produce(options: ProduceOptions) -> None:
    """Produce a record for each line.

    With a schema a line, or its field, is JSON as consume prints it, and is sent as Avro, JSON Schema or Protobuf.
    """
    read = _reader(options)
    with failures(options.bootstrap_server):
        properties = client_properties(
            options.bootstrap_server,
            options.client_config,
            acks=options.acks,
            compression_type=options.compression,
            linger_ms=5,
            message_timeout_ms=int(FLUSH_S * 1000),
        )
        kafka = confluent()
        _check_files(options.files)
        check_reachable(properties)
        producer = kafka.Producer(with_java_defaults(properties))
        # a typing error would create a topic; scripts may rely on auto.create.topics.enable
        if options.create is False or (options.create is None and sys.stderr.isatty()):
            _check_topic(producer, options.topic)
        sender = Sender(producer, options.topic)
        try:
            _send_lines(sender, read, options)
        except KeyboardInterrupt as error:
            sender.finish(INTERRUPTED_FLUSH_S)
            note(f"interrupted: {sender.summary()}")
            raise typer.Exit(INTERRUPTED) from error
    if sender.failures:
        raise typer.Exit(fail(f"{sender.summary()} The first: {sender.failures[0]}"))
    if not options.quiet:
        print(sender.summary())


def _check_topic(producer: Any, topic: str) -> None:
    """Exit if the topic does not exist. Raises KafkaException."""
    from kafkapy.cli.chosen import missing

    known = producer.list_topics(timeout=TIMEOUT_S).topics
    if topic not in known:
        raise typer.Exit(fail(f"{missing('topic', topic, known)} --create lets the broker create it"))


def _reader(options: ProduceOptions) -> LineReader:
    """Return the reader that turns a line into a record. Raises BadParameter for options that contradict."""
    if options.is_json and (options.line_format is not None or options.key_separator is not None):
        raise typer.BadParameter("--json says how a line reads: no --format, no --key-separator")
    if options.line_format is not None and options.key_separator is not None:
        raise typer.BadParameter("--format and --key-separator both say how a line reads: give one of them")
    if options.is_json and (options.null is not None or options.key_schema or options.value_schema):
        raise typer.BadParameter("--json has null and the exact bytes: no --null, no --key-schema, no --value-schema")
    if (options.key_schema or options.value_schema) and options.schema_registry is None:
        raise typer.BadParameter("--schema-registry says where the schema is: a registry's URL, or a directory")
    try:
        read = _json_record if options.is_json else _text_reader(options)
        common: dict[str, Any] = {"partition": options.partition}
        common["headers"] = [_header(text) for text in options.header or ()]
        if options.timestamp is not None:
            common["timestamp"] = moment_ms(options.timestamp, int(time.time() * 1000))
        return lambda line: {**common, **read(line)}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _text_reader(options: ProduceOptions) -> LineReader:
    """Return what makes records of lines, as the options say. Raises ValueError."""
    plain = reader_of(options.line_format, options.key_separator)
    read = plain if options.null is None else with_nulls(plain, options.null)
    schemas = {"key": options.key_schema, "value": options.value_schema}
    where = options.schema_registry or ""
    encoders = {name: encoder_of(where, schema) for name, schema in schemas.items() if schema is not None}
    key = None if options.key is None else options.key.encode()

    def record_of(line: bytes) -> dict[str, Any]:
        record = {"key": key, **read(line)}
        for name, encode in encoders.items():
            if record[name] is not None:
                record[name] = encode(record[name])
        return record

    return record_of


def _send_lines(sender: Sender, read: LineReader, options: ProduceOptions) -> None:
    """Send a record for each line, and wait until all are delivered. Exits at a line that is no record."""
    number = 0
    try:
        for line in _lines(options.files):
            number += 1
            sender.send(read(line))
    except (ValueError, OSError) as error:
        sender.finish(FLUSH_S + 1)
        reason = f"line {number}: {error}" if isinstance(error, ValueError) else reason_of(error)
        raise typer.Exit(fail(f"{reason}. {sender.summary()}")) from error
    sender.finish(FLUSH_S + 1)


def _lines(files: list[Path] | None) -> Iterator[bytes]:
    """Yield the lines of the files. Raises OSError."""
    for path in files or [STDIN]:
        if path == STDIN:
            yield from _typed_lines() if sys.stdin.isatty() else (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
            continue
        with path.open("rb") as file:
            yield from (line.rstrip(b"\r\n") for line in file)


def _check_files(files: list[Path] | None) -> None:
    """Exit if a file cannot be opened, before a record is sent."""
    for path in files or ():
        try:
            if path != STDIN:
                path.open("rb").close()
        except OSError as error:
            raise typer.Exit(fail(f"{path}: {error.strerror}")) from error


def _typed_lines() -> Iterator[bytes]:
    """Yield lines typed at a prompt, until Ctrl-D."""
    print(PROMPT, end="", file=sys.stderr, flush=True)
    for line in iter(sys.stdin.buffer.readline, b""):
        yield line.rstrip(b"\r\n")
        print(PROMPT, end="", file=sys.stderr, flush=True)


def _json_record(line: bytes) -> dict[str, Any]:
    from kafkapy.decoders.row import record_of

    return record_of(json.loads(line))


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--header {quoted(text)} must read name=value")
    return name, value.encode()
