"""`kafkapy consume TOPIC...`: prints records as lines, or as JSON lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from kafkapy.cli.client import client_properties, confluent, failures
from kafkapy.cli.consume_options import ConsumeOptions
from kafkapy.cli.consume_span import Span, begin
from kafkapy.cli.failure import note
from kafkapy.cli.interrupt import sigterm_as_interrupt
from kafkapy.cli.moments import moment_ms
from kafkapy.cli.options import takes
from kafkapy.cli.progress import Progress
from kafkapy.cli.reachable import check_reachable
from kafkapy.cli.received import (
    Filter,
    Received,
    filters_of,
    format_of,
    json_format,
    text_format,
    write,
)
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.decoders.formats import Decoders

POLL_S = 0.2
"""How long Ctrl-C may be delayed: librdkafka's poll is not interruptible."""


@takes(ConsumeOptions)
def consume(options: ConsumeOptions) -> None:
    """Print the records of topics as lines, until --max-messages, --until-end, --until, --timeout-ms or Ctrl-C.

    Filters may be combined: records that all of them accept are printed, and count for --max-messages.
    """
    _check_options(options)
    accept, form = _filters(options), _format(options)
    decoders = _decoders(options.key_format, options.value_format, options.schema_registry)
    with failures(options.bootstrap_server):
        properties = _properties(options)
        kafka = confluent()
        check_reachable(properties)
        with _consumer(kafka, properties) as consumer:
            span, total = begin(consumer, options)
            if sys.stderr.isatty() and sys.stdout.isatty() and not (options.until_end or options.until):
                note(f"waiting for records of {', '.join(span.topics)}, Ctrl-C ends")
            _print_records(consumer, span, total, _Printer(decoders, accept, form), options)


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
    """Raise BadParameter for options that contradict each other, or that cannot be read."""
    if sum((options.from_beginning, options.offset is not None, options.from_time is not None)) > 1:
        raise typer.BadParameter("--from-beginning, --offset and --from say where to begin: give one of them")
    if options.group is not None and (options.offset is not None or options.partition):
        raise typer.BadParameter("a member of a group is given its partitions and offsets: no --partition, no --offset")
    if options.group is not None and (options.from_time or options.until):
        raise typer.BadParameter("a member of a group is given its offsets: no --from, no --until")
    if sum((options.as_json, options.line_format is not None, options.key_separator is not None)) > 1:
        raise typer.BadParameter("--json, --format and --key-separator say how to print: give one of them")
    for name, text in (("--from", options.from_time), ("--until", options.until)):
        try:
            moment_ms(text or "-1s", 0)
        except ValueError as error:
            raise typer.BadParameter(f"{name}: {error}") from error


def _filters(options: ConsumeOptions) -> list[Filter]:
    try:
        return filters_of(
            key=options.key, grep=options.grep, headers=options.header or (), json_paths=options.json_path or ()
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _format(options: ConsumeOptions) -> Callable[[Received], bytes]:
    if options.as_json:
        return json_format
    if options.line_format is None:
        return text_format(options.key_separator)
    try:
        return format_of(options.line_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


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


class _Printer:
    """Prints the records that all filters accept."""

    def __init__(self, decoders: "Decoders", accept: list[Filter], form: Callable[[Received], bytes]) -> None:
        self._decoders = decoders
        self._accept = accept
        self._form = form

    def print(self, message: Any) -> bool:
        """Return whether the record was printed."""
        received = Received(message, self._decoders)
        if not all(accepts(received) for accepts in self._accept):
            return False
        write(self._form(received))
        return True


def _print_records(consumer: Any, span: Span, total: int | None, printer: _Printer, options: ConsumeOptions) -> None:
    """Print records until an end is reached. Raises KafkaException. total: offsets of a search; its progress is shown.

    librdkafka looks for its group's coordinator even if partitions are assigned, and reads them without it: without a
    group, that it may not know the group is ignored.
    """
    kafka = confluent()
    ignored = () if options.group is not None else (kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,)
    count, searched = 0, 0
    last_s = time.monotonic()
    with Progress("records searched", total or 0) as progress:
        while not span.is_over and (options.max_messages is None or count < options.max_messages):
            message = consumer.poll(POLL_S)
            if message is None:
                if options.timeout_ms is not None and (time.monotonic() - last_s) * 1000 >= options.timeout_ms:
                    return
                span.maybe_find_ends(consumer)
                continue
            error = message.error()
            if error is None:
                last_s = time.monotonic()
                searched += 1
                if total is not None and not sys.stdout.isatty():
                    progress.show(searched)
                if not span.excludes(message):
                    count += printer.print(message)
                elif span.until_ms is not None:
                    # later records of the partition are assumed to be later in time, and are not fetched
                    consumer.pause([kafka.TopicPartition(message.topic(), message.partition())])
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                span.reached_end(TopicPartition(message.topic(), message.partition()), message.offset())
            elif error.code() not in ignored:
                raise kafka.KafkaException(error)


def _decoders(key_format: str | None, value_format: str | None, location: str | None) -> "Decoders":
    """Return the decoders of the options. With a registry, values with its schemas are decoded by default."""
    from kafkapy.decoders.errors import DecodeError
    from kafkapy.decoders.formats import AUTO, Decoders
    from kafkapy.decoders.registry import SchemaRegistry

    try:
        if location is None:
            return Decoders(key_format or "text", value_format or "text")
        return Decoders(key_format or AUTO, value_format or AUTO, SchemaRegistry(location))
    except DecodeError as error:
        raise typer.BadParameter(str(error)) from error
