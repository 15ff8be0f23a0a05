"""`kafkapy groups redrive`: sends the dead letters of share groups back to the partitions of their records."""

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkapy.cli.chosen import confirm
from kafkapy.cli.client import (
    DEFAULT_SERVER,
    ClientConfig,
    Server,
    client_properties,
    confluent,
    failures,
)
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.failure import INTERRUPTED, fail, note
from kafkapy.cli.interrupt import sigterm_as_interrupt
from kafkapy.cli.options import takes
from kafkapy.cli.output import counted, not_delivered, print_table
from kafkapy.cli.progress import Progress
from kafkapy.cli.reachable import check_reachable
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

if TYPE_CHECKING:
    from kafkapy.cli.dead_letters import Choice, Redriven, Survey
    from kafkapy.cli.redrive_state import StateFile

SAVE_S: Final = 1.0
"""The state is saved this often: after a kill, `--resume` sends again only the records of this time. Ctrl-C may kill a
redrive that waits for a broker (interrupt.py)."""
SAVE_PAUSES: Final = 20
"""The interval is at least so many times the last save, which takes a second with a million letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """The arguments and options of `kafkapy groups redrive`."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The dead-letter topic.")]
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only what this share group gave up.")] = None
    source: Annotated[
        str | None, typer.Option("--source", "-s", metavar="TOPIC", help="Only what came from this topic.")
    ] = None
    letters: Annotated[
        list[str] | None,
        typer.Option(
            "--letter",
            "-l",
            metavar="PARTITION:OFFSET",
            help="Only the dead letter at this place of TOPIC; may be repeated.",
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent back, and where to.")] = False
    trim: Annotated[
        bool, typer.Option("--trim", help="Delete from TOPIC what was sent back, as far as nothing before it is left.")
    ] = False
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Only what the last redrive of TOPIC left, which was not finished."),
    ] = False
    is_confirmed: Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")] = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(RedriveOptions)
def redrive_letters(options: RedriveOptions) -> None:
    """Send dead letters of share groups back to the topics and partitions where their records were, after a question.

    A record goes back as it was if it is still in its topic, else with the key and value that its dead letter has. All
    groups that read the topic get it again. The dead letters stay, and would go back again, unless --trim deletes them.
    Which ones went back is remembered if not all could: --resume sends the others.
    """
    from kafkapy.cli.dead_letters import RedriveError

    with failures(options.bootstrap_server):
        kafka = confluent()
        properties = _consumer_properties(options)
        check_reachable(properties)
        try:
            with closing(kafka.Consumer(properties)) as consumer, closing(kafka.Consumer(properties)) as lookup:
                status = _redrive(options, consumer, lookup)
        except RedriveError as error:
            raise typer.Exit(fail(str(error))) from error
    if status:
        raise typer.Exit(status)


def _redrive(options: RedriveOptions, consumer: Any, lookup: Any) -> int:
    """Return the exit status. Raises RedriveError, KafkaException."""
    from kafkapy.cli.committed_offsets import BrokerConnections
    from kafkapy.cli.dead_letters import bounds_of
    from kafkapy.cli.redrive_lock import only_redrive

    starts = {partition: start for partition, (start, _) in bounds_of(consumer, options.topic).items()}
    if options.dry_run:
        return _redrive_alone(options, consumer, lookup, starts, lambda: None)

    properties = client_properties(options.bootstrap_server, options.client_config)
    with (
        BrokerConnections(properties) as brokers,
        only_redrive(brokers, options.topic, note, waits=True) as check,
    ):
        return _redrive_alone(options, consumer, lookup, starts, check)


def _redrive_alone(
    options: RedriveOptions, consumer: Any, lookup: Any, starts: dict[int, int], check: Callable[[], None]
) -> int:
    """As _redrive, while no other redrive of the topic runs, as far as `check` knows."""
    from kafkapy.cli.dead_letters import Redriven

    state = _state_file(options, consumer)
    survey = _survey(options, consumer, state)
    if options.resume and not survey.letter_count:
        print("No dead letter is left to be sent back.")
        if options.dry_run:
            return 0
        if options.trim:
            confirm((), "Delete the letters that went back?", is_confirmed=options.is_confirmed)
        redriven, status = Redriven.before(survey), 0
    else:
        if not _is_wanted(survey, options):
            return 0
        redriven = _send(options, consumer, lookup, survey, state, check)
        if redriven.failures:
            state.save(survey, redriven.done)
        status = _report(redriven)
    if redriven.failures:
        note(f"remembered what went back: kafkapy groups redrive {options.topic} --resume sends the others alone")
        return status
    if options.trim:
        try:
            _trim(options, redriven.trimmed_to(survey, starts))
        except BaseException:
            state.save(survey, redriven.done)  # --resume --trim deletes it then
            raise
    state.forget(survey.choice)
    return status


def _state_file(options: RedriveOptions, consumer: Any) -> "StateFile":
    """Return the file with what a redrive of the topic has left. Raises KafkaException."""
    from kafkapy.cli.client import admin_client
    from kafkapy.cli.redrive_state import StateFile, path_of

    cluster_id = consumer.list_topics(options.topic, timeout=TIMEOUT_S).cluster_id
    topics = confluent().TopicCollection([options.topic])
    admin = admin_client(options.bootstrap_server, options.client_config)
    described = admin.describe_topics(topics, request_timeout=TIMEOUT_S)[options.topic].result(TIMEOUT_S + 5)
    return StateFile(path_of(os.environ, cluster_id or "", options.topic), str(described.topic_id))


def _survey(options: RedriveOptions, consumer: Any, state: "StateFile") -> "Survey":
    """Return the letters to send, those of the options or of --resume. Raises RedriveError, KafkaException."""
    from kafkapy.cli.dead_letters import RedriveError, bounds_of, survey_letters

    choice = _choice(options)
    if not options.resume:
        if state.is_there:
            note(
                f"the last redrive of {options.topic} was not finished: --resume sends what it left, this starts again"
            )
        return survey_letters(consumer, options.topic, choice)
    if choice != (None, None, None):
        raise typer.BadParameter(
            "--resume chooses what the redrive chose that it resumes: no --group, --source, --letter"
        )
    left = state.load()
    if left is None:
        raise RedriveError(f"no redrive of {options.topic} is unfinished")
    bounds = bounds_of(consumer, options.topic)
    if left.topic_id != state.topic_id or any(  # brokers before 2.8 give all topics the same id
        partition not in bounds or bounds[partition][1] < end for partition, end in left.ends.items()
    ):
        raise RedriveError(f"{options.topic} was made again since: redrive it without --resume")
    return survey_letters(consumer, options.topic, left.choice, ends=left.ends, delivered=left.delivered)


def _send(
    options: RedriveOptions,
    consumer: Any,
    lookup: Any,
    survey: "Survey",
    state: "StateFile",
    check: Callable[[], None],
) -> "Redriven":
    """Send the letters back. If it ends early, the delivered ones are kept for --resume; Ctrl-C exits."""
    from kafkapy.cli.dead_letters import RedriveError, Redriven, redrive

    kafka = confluent()
    redriven = Redriven.before(survey)
    producer = kafka.Producer(_producer_properties(options))
    save_at_s = time.monotonic() + SAVE_S
    # else it is the state of other options, which must not be lost when this redrive ends
    may_save = options.resume or not state.is_there

    def on_progress(handled: int) -> None:
        nonlocal save_at_s
        progress.show(handled)
        check()
        begun_s = time.monotonic()
        if may_save and begun_s >= save_at_s:
            with suppress(RedriveError):  # reported at the end, if letters are left then
                state.save(survey, redriven.done)
            save_at_s = time.monotonic() + max(SAVE_S, SAVE_PAUSES * (time.monotonic() - begun_s))

    check()  # the question may have waited for long
    try:
        with sigterm_as_interrupt(), Progress("dead letters sent back", survey.letter_count) as progress:
            return redrive(consumer, lookup, producer, survey, on_progress, redriven)
    except (KeyboardInterrupt, RedriveError, kafka.KafkaException) as error:
        state.save(survey, redriven.done)
        note(f"{counted(redriven.count, 'record')} went back: --resume sends the others alone")
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(INTERRUPTED) from error
        raise


def _choice(options: RedriveOptions) -> "Choice":
    from kafkapy.cli.dead_letters import Choice

    places = None
    if options.letters:
        pairs = [each.partition(":") for each in options.letters]
        if any(not (partition.isdecimal() and offset.isdecimal()) for partition, _, offset in pairs):
            raise typer.BadParameter(f"{quoted(' '.join(options.letters))} must read PARTITION:OFFSET")
        places = frozenset((int(partition), int(offset)) for partition, _, offset in pairs)
    return Choice(options.group, options.source, places)


def _consumer_properties(options: RedriveOptions) -> dict[str, Any]:
    return client_properties(
        options.bootstrap_server,
        options.client_config,
        group_id="kafkapy-redrive",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        fetch_queue_backoff_ms=10,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
    )


def _producer_properties(options: RedriveOptions) -> dict[str, Any]:
    return client_properties(
        options.bootstrap_server,
        options.client_config,
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        message_timeout_ms=30_000,
        allow_auto_create_topics=False,
    )


def _is_wanted(survey: "Survey", options: RedriveOptions) -> bool:
    """Show what will be done, and ask; return whether to do it."""
    if survey.foreign_count:
        note(f"left in {survey.topic}, because it is no dead letter: {counted(survey.foreign_count, 'record')}")
    if not survey.letter_count:
        print("No dead letter is to be sent back.")
        return False
    rows = [(*place, count) for place, count in sorted(survey.counts.items())]
    title = "Would be sent back without --dry-run:" if options.dry_run else None
    print_table(("GROUP", "TO", "PARTITION", "LETTERS"), rows, title=title)
    if options.dry_run:
        return False
    confirm((), f"Send {counted(survey.letter_count, 'record')} back?", is_confirmed=options.is_confirmed)
    return True


def _report(redriven: "Redriven") -> int:
    repeats = redriven.repeated_count
    verb = "was" if repeats == 1 else "were"
    repeated = f" {counted(repeats, 'dead letter')} {verb} of the same records." if repeats else ""
    print(f"Sent {counted(redriven.count, 'record')} back.{repeated}")
    status = 0
    if redriven.gone:
        first = redriven.gone[0]
        status = fail(
            f"the record of {counted(len(redriven.gone), 'dead letter')} is gone, the first"
            f" at {first.partition}:{first.offset}"
            f" ({first.source_topic}-{first.source_partition}, offset {first.source_offset})"
        )
    if redriven.failures:
        status = fail(f"{not_delivered(len(redriven.failures))}. The first: {redriven.failures[0]}")
    return status


def _trim(options: RedriveOptions, ends: dict[int, int]) -> None:
    """Delete the dead letters before these offsets."""
    from kafkapy.cli.client import admin_client, outcomes

    kafka = confluent()
    admin = admin_client(options.bootstrap_server, options.client_config)
    wanted = [kafka.TopicPartition(options.topic, partition, offset) for partition, offset in sorted(ends.items())]
    if not wanted:
        return
    for partition, _, error in outcomes(admin.delete_records(wanted, request_timeout=TIMEOUT_S)):
        if error is not None:
            raise typer.Exit(fail(f"{options.topic}-{partition.partition}: {error}"))
    print(f"Deleted what was sent back from {counted(len(wanted), 'partition')} of {options.topic}.")
