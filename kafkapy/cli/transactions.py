"""`kafkapy transactions list|describe|producers|find-hanging|abort|terminate`: Java's kafka-transactions.sh."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkapy.cli.client import DEFAULT_SERVER, AsJson, Server
from kafkapy.cli.failure import INTERRUPTED, fail
from kafkapy.cli.output import print_json, print_table
from kafkapy.cli.overview import GROUPS
from kafkapy.types import TopicPartition

if TYPE_CHECKING:  # its messages are imported when a command runs
    from kafkapy.cli.transaction_admin import OpenTransaction, TransactionAdmin

app = typer.Typer(help=GROUPS["transactions"], no_args_is_help=True)

TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL_ID", show_default=False, help="What the producer is configured with.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The name of a topic.")]
Partition = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, show_default=False, help="The number of a partition.")
]

MINUTE_MS: Final = 60_000
DEFAULT_MAX_TIMEOUT_MINUTES: Final = 15
"""The default of transaction.max.timeout.ms."""


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="Only in this state, as Ongoing (repeat).")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="Only of this producer (repeat).")
    ] = None,
    longer_than: Annotated[
        int, typer.Option("--longer-than", metavar="MS", help="Only transactions that have run for longer.")
    ] = -1,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that this regular expression matches as a whole.")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """List transactional ids with producer id, state and coordinator."""
    with _connected(bootstrap_server) as admin:
        listed = admin.list_transactions(
            states=state or (), producer_ids=producer_id or (), duration_ms=longer_than, pattern=pattern
        )
    if as_json:
        print_json(listed)
    else:
        columns = ("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE")
        print_table(columns, (list(each.values()) for each in listed))


@app.command()
def describe(
    transactional_id: TransactionalId, as_json: AsJson = False, bootstrap_server: Server = DEFAULT_SERVER
) -> None:
    """Show one transactional id: its producer, state and partitions."""
    with _connected(bootstrap_server, transactional_id) as admin:
        coordinator, state = admin.describe(transactional_id)
    partitions = sorted(f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions)
    is_begun = state.transaction_start_time_ms >= 0
    described = {
        "transactional_id": transactional_id,
        "coordinator": coordinator,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.transaction_state,
        "timeout_ms": state.transaction_timeout_ms,
        "started_ms": state.transaction_start_time_ms if is_begun else None,
        "duration_ms": _now_ms() - state.transaction_start_time_ms if is_begun else None,
        "partitions": partitions,
    }
    if as_json:
        print_json(described)
    else:
        shown = {**described, "partitions": " ".join(partitions) or "-"}
        print_table(
            ("", ""), ((key.replace("_", " "), "-" if value is None else value) for key, value in shown.items())
        )


@app.command()
def producers(
    topic: Topic, partition: Partition, as_json: AsJson = False, bootstrap_server: Server = DEFAULT_SERVER
) -> None:
    """Show the producers that a partition's leader remembers, with their open transactions."""
    requested = TopicPartition(topic, partition)
    with _connected(bootstrap_server) as admin:
        rows = [_producer(each) for each in admin.producers_of(requested)]
    if as_json:
        print_json(rows)
    else:
        columns = ("PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP", "OPEN FROM")
        print_table(columns, (_dashed(row.values()) for row in rows))


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only in this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", min=0, help="Only in this partition.")
    ] = None,
    broker: Annotated[int | None, typer.Option("--broker", help="Only partitions with a replica here.")] = None,
    max_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout", metavar="MINUTES", min=0, help="Only if the last record is older than this."
        ),
    ] = DEFAULT_MAX_TIMEOUT_MINUTES,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """Find transactions that nobody will end: open in a partition, and unknown to their coordinator."""
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    now_ms = _now_ms()
    with _connected(bootstrap_server) as admin:
        partitions = admin.partitions(topic, broker)
        if partition is not None:
            partitions = [each for each in partitions if each.partition == partition]
        # leaders list open transactions at once; coordinators are asked only about those that are old enough to hang
        old = [
            each
            for each in admin.open_transactions(partitions)
            if now_ms - each.producer.last_timestamp > max_timeout * MINUTE_MS
        ]
        hanging = admin.hanging_among(old) if old else []
    _print_hanging(hanging, as_json=as_json)


def _print_hanging(hanging: "list[OpenTransaction]", *, as_json: bool) -> None:
    rows = [
        {"topic": each.partition.topic, "partition": each.partition.partition} | _producer(each.producer)
        for each in hanging
    ]
    if as_json:
        print_json(rows)
        return
    columns = (
        "TOPIC",
        "PARTITION",
        "PRODUCER ID",
        "EPOCH",
        "COORDINATOR EPOCH",
        "LAST SEQUENCE",
        "LAST TIMESTAMP",
        "OPEN FROM",
    )
    print_table(columns, (_dashed(row.values()) for row in rows))
    for row in rows:
        print(
            f"To end it: kafkapy transactions abort {row['topic']} {row['partition']} --start-offset {row['open_from']}"
        )


@app.command()
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[int, typer.Option("--start-offset", min=0, help="Where the transaction begins.")],
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """End a hanging transaction in one partition, without its coordinator."""
    requested = TopicPartition(topic, partition)
    with _connected(bootstrap_server) as admin:
        found = [
            each
            for each in admin.open_transactions([requested])
            if each.producer.current_txn_start_offset == start_offset
        ]
        if not found:
            raise typer.Exit(fail(f"{requested}: no transaction is open from offset {start_offset} on"))
        admin.abort(found[0])
    print(f"Aborted the transaction of producer {found[0].producer.producer_id} in {requested}.")


@app.command()
def terminate(transactional_id: TransactionalId, bootstrap_server: Server = DEFAULT_SERVER) -> None:
    """Abort the transaction of a transactional id and fence its producer."""
    with _connected(bootstrap_server, transactional_id) as admin:
        producer_id, producer_epoch = admin.terminate(transactional_id)
    print(f"Fenced {transactional_id}: producer {producer_id} continues at epoch {producer_epoch}.")


@contextmanager
def _connected(servers: str, subject: str = "") -> "Iterator[TransactionAdmin]":
    """Turn a failure into one line, which names the subject, and exit status 1."""
    from kafkapy.cli.transaction_admin import TransactionAdmin, TransactionError

    try:
        with TransactionAdmin(servers) as admin:
            yield admin
    except TransactionError as error:
        raise typer.Exit(fail(f"{subject}: {error}" if subject else str(error))) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def _producer(state: Any) -> dict[str, Any]:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        "last_sequence": state.last_sequence if state.last_sequence >= 0 else None,
        "last_timestamp": _iso(state.last_timestamp),
        "open_from": state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    }


def _iso(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _dashed(cells: Any) -> list[object]:
    return ["-" if cell is None else cell for cell in cells]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
