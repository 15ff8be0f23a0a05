"""`kafkapy produce TOPIC`: produces lines of standard input, or of files, as records."""

import json
import sys
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
)
from kafkapy.cli.failure import INTERRUPTED, fail, note, reason_of
from kafkapy.cli.options import takes
from kafkapy.cli.reachable import check_reachable
from kafkapy.cli.sender import Sender
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted
from kafkapy.types import INT32_MAX

FLUSH_TIMEOUT_S = 30.0
INTERRUPTED_FLUSH_S = 0.3
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
    is_json: Annotated[
        bool, typer.Option("--json", help="A line is an object, as consume --json prints it; exact, if it did.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing on success.")] = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(ProduceOptions)
def produce(options: ProduceOptions) -> None:
    """Produce a record for each line."""
    with failures(options.bootstrap_server):
        properties = client_properties(
            options.bootstrap_server,
            options.client_config,
            acks=options.acks,
            compression_type=options.compression,
            linger_ms=5,
            message_timeout_ms=int(FLUSH_TIMEOUT_S * 1000),
        )
        _check_files(options.files)
        check_reachable(properties)
        sender = Sender(confluent().Producer(properties), options.topic)
        try:
            _send_lines(sender, options)
        except KeyboardInterrupt as error:
            sender.finish(INTERRUPTED_FLUSH_S)
            note(f"interrupted: {sender.summary()}")
            raise typer.Exit(INTERRUPTED) from error
    if sender.failures:
        raise typer.Exit(fail(f"{sender.summary()} The first: {sender.failures[0]}"))
    if not options.quiet:
        print(sender.summary())


def _send_lines(sender: Sender, options: ProduceOptions) -> None:
    """Send a record for each line, and wait until all are delivered. Exits at a line that is no record."""
    headers = [_header(text) for text in options.header or ()]
    number = 0
    try:
        for line in _lines(options.files):
            number += 1
            record = _json_record(line) if options.is_json else _text_record(line, options.key, options.key_separator)
            record.setdefault("partition", options.partition)
            record.setdefault("headers", headers)
            sender.send(record)
    except (ValueError, OSError) as error:
        sender.finish(FLUSH_TIMEOUT_S + 1)
        reason = f"line {number}: {error}" if isinstance(error, ValueError) else reason_of(error)
        raise typer.Exit(fail(f"{reason}. {sender.summary()}")) from error
    sender.finish(FLUSH_TIMEOUT_S + 1)


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


def _text_record(line: bytes, key: str | None, separator: str | None) -> dict[str, Any]:
    if separator is None:
        return {"value": line, "key": key}
    found_key, found, value = line.partition(separator.encode())
    if not found:
        raise ValueError(f"there is no {quoted(separator)} between key and value")
    return {"value": value, "key": found_key}


def _json_record(line: bytes) -> dict[str, Any]:
    from kafkapy.decoders.row import record_of

    return record_of(json.loads(line))


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--header {quoted(text)} must read name=value")
    return name, value.encode()
