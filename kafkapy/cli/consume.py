"""`kafkapy consume TOPIC`: prints records as lines, or as JSON lines."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.cli.client import DEFAULT_SERVER, ClientConfig, Server, client_properties, confluent, failures
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import fail, note
from kafkapy.cli.interrupt import sigterm_as_interrupt
from kafkapy.cli.options import takes
from kafkapy.cli.reachable import check_reachable
from kafkapy.dataclass import dataclass
from kafkapy.types import INT64_MAX

if TYPE_CHECKING:
    from kafkapy.decoders.formats import Decoded, Decoders

POLL_S = 0.2
KNOWN_FORMATS = (
    "text, json, hex, base64, short, integer, long, float, double, boolean, uuid, messagepack, avro, json-schema, "
    "protobuf, internal, or auto, which decides by the data"
)
MAX_OFFSET = INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The arguments and options of `kafkapy consume`."""

    topic: Annotated[str, typer.Argument(show_default=False, help="The topic to read.")]
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
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print each record as a JSON object, from which produce --json restores it."),
    ] = False
    key_format: Annotated[str, typer.Option("--key-format", help=f"How keys are decoded: {KNOWN_FORMATS}.")] = "text"
    value_format: Annotated[
        str, typer.Option("--value-format", help="How values are decoded; the formats of --key-format.")
    ] = "text"
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry", metavar="URL|DIR", help="Where schemas are: a registry, or NUMBER.avsc, .json, .desc."
        ),
    ] = None
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(ConsumeOptions)
def consume(options: ConsumeOptions) -> None:
    """Print the records of a topic as lines, until --max-messages, --until-end, --timeout-ms or Ctrl-C."""
    _check_options(options)
    decoders = _decoders(options.key_format, options.value_format, options.schema_registry)
    with failures(options.bootstrap_server):
        properties = _properties(options)
        check_reachable(properties)
        kafka = confluent()
        with _consumer(kafka, properties) as consumer:
            partition_count = _begin(kafka, consumer, options)
            if sys.stderr.isatty() and sys.stdout.isatty() and not options.until_end:
                note(f"waiting for records of {options.topic}, Ctrl-C ends")
            write = _json_writer(decoders) if options.as_json else _text_writer(options.key_separator, decoders)
            _print_records(kafka, consumer, write, partition_count, options)


def _properties(options: ConsumeOptions) -> dict[str, Any]:
    """Return librdkafka's properties."""
    return client_properties(
        options.bootstrap_server,
        options.client_config,
        group_id=options.group if options.group is not None else "kafkapy-console",
        enable_auto_commit=options.group is not None,
        enable_partition_eof=True,
        auto_offset_reset="earliest" if options.from_beginning else "latest",
        isolation_level=options.isolation,
    )


def _check_options(options: ConsumeOptions) -> None:
    """Raise BadParameter for options that contradict each other."""
    if options.from_beginning and options.offset is not None:
        raise typer.BadParameter("--from-beginning and --offset both say where to begin: give one of them")
    if options.group is not None and (options.offset is not None or options.partition):
        raise typer.BadParameter("a member of a group is given its partitions and offsets: no --partition, no --offset")


@contextmanager
def _consumer(kafka: Any, properties: dict[str, Any]) -> Iterator[Any]:
    """A consumer that is closed at the end, and leaves its group; Ctrl-C and SIGTERM end it normally."""
    with sigterm_as_interrupt():
        consumer = kafka.Consumer(properties)
        try:
            yield consumer
        except KeyboardInterrupt:
            pass
        finally:
            consumer.close()


def _begin(kafka: Any, consumer: Any, options: ConsumeOptions) -> int:
    """Subscribe, or assign partitions without a group; return the number of partitions."""
    topic = options.topic
    metadata = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise typer.Exit(fail(f"{topic}: {metadata.error.str()}"))
    if options.group is not None:
        consumer.subscribe([topic])
        return len(metadata.partitions)
    wanted = options.partition or sorted(metadata.partitions)
    missing = sorted(set(wanted) - set(metadata.partitions))
    if missing:
        raise typer.Exit(fail(f"{topic} has no partition {', '.join(map(str, missing))}"))
    start = kafka.OFFSET_BEGINNING if options.from_beginning else kafka.OFFSET_END
    assigned = [kafka.TopicPartition(topic, each, start) for each in wanted]
    if options.offset is not None:
        for each in assigned:
            each.offset = _absolute(consumer, each, options.offset)
    consumer.assign(assigned)
    return len(assigned)


def _absolute(consumer: Any, partition: Any, offset: int) -> int:
    """Return the absolute offset; a negative one counts from the partition's end."""
    if offset >= 0:
        return offset
    low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
    return int(max(low, high + offset))


def _print_records(kafka: Any, consumer: Any, write: Any, partition_count: int, options: ConsumeOptions) -> None:
    """Print records until an end is reached. Raises KafkaException.

    librdkafka looks for its group's coordinator even if partitions are assigned, and reads them without it: without a
    group, that it may not know the group is ignored.
    """
    ignored = () if options.group is not None else (kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,)
    ended: set[int] = set()
    count = 0
    last_s = time.monotonic()
    while options.max_messages is None or count < options.max_messages:
        message = consumer.poll(POLL_S)
        if message is None:
            if options.timeout_ms is not None and (time.monotonic() - last_s) * 1000 >= options.timeout_ms:
                return
            continue
        error = message.error()
        if error is None:
            write(message)
            count += 1
            last_s = time.monotonic()
        elif error.code() == kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
            if options.until_end and len(ended) >= partition_count:
                return
        elif error.code() not in ignored:
            raise kafka.KafkaException(error)


def _decoders(key_format: str, value_format: str, location: str | None) -> "Decoders":
    from kafkapy.decoders.errors import DecodeError
    from kafkapy.decoders.formats import Decoders
    from kafkapy.decoders.registry import SchemaRegistry

    try:
        return Decoders(key_format, value_format, None if location is None else SchemaRegistry(location))
    except DecodeError as error:
        raise typer.BadParameter(str(error)) from error


def _text_writer(key_separator: str | None, decoders: "Decoders") -> Any:
    def write(message: Any) -> None:
        topic, key, value = message.topic(), message.key(), message.value()
        shown = b""
        if key_separator is not None:
            shown = _line(key, decoders.key(topic, key)) + key_separator.encode()
        sys.stdout.buffer.write(shown + _line(value, decoders.value(topic, key, value)) + b"\n")
        sys.stdout.buffer.flush()

    return write


def _line(data: bytes | None, decoded: "Decoded") -> bytes:
    """Return what is printed of a key or value: text byte for byte, other formats as JSON."""
    if decoded.error is not None:
        note(decoded.error)
    if data is None or decoded.format == "text":
        return b"null" if data is None else data
    text = decoded.value if isinstance(decoded.value, str) else json.dumps(decoded.value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def _json_writer(decoders: "Decoders") -> Any:
    from kafkapy.decoders.row import ConsumedRecord, row_of

    def write(message: Any) -> None:
        topic, key, value = message.topic(), message.key(), message.value()
        record = ConsumedRecord(
            topic, message.partition(), message.offset(), message.timestamp()[1], key, value, message.headers() or ()
        )
        row = row_of(record, decoders.key(topic, key), decoders.value(topic, key, value))
        sys.stdout.buffer.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.buffer.flush()

    return write
