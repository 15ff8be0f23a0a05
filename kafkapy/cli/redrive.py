"""`kafkapy groups redrive`: sends the dead letters of share groups back to where their records were."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

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
from kafkapy.cli.output import counted, print_table
from kafkapy.cli.progress import Progress
from kafkapy.cli.reachable import check_reachable
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

if TYPE_CHECKING:
    from kafkapy.cli.dead_letters import Choice, Redriven, Survey


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
    is_confirmed: Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")] = False
    bootstrap_server: Server = DEFAULT_SERVER
    client_config: ClientConfig = None


@takes(RedriveOptions)
def redrive_letters(options: RedriveOptions) -> None:
    """Send dead letters of share groups back to the topics and partitions where their records were, after a question.

    A record goes back as it was if it is still in its topic, else with the key and value that its dead letter has. All
    groups that read the topic get it again. The dead letters stay, and would go back again, unless --trim deletes them.
    """
    from kafkapy.cli.dead_letters import RedriveError, bounds_of, redrive, survey_letters

    choice = _choice(options)
    with failures(options.bootstrap_server):
        properties = _consumer_properties(options)
        check_reachable(properties)
        kafka = confluent()
        try:
            with closing(kafka.Consumer(properties)) as consumer, closing(kafka.Consumer(properties)) as lookup:
                survey = survey_letters(consumer, options.topic, choice)
                if not _is_wanted(survey, options):
                    return
                starts = {partition: start for partition, (start, _) in bounds_of(consumer, options.topic).items()}
                with sigterm_as_interrupt(), Progress("dead letters sent back", survey.letter_count) as progress:
                    redriven = redrive(consumer, lookup, kafka.Producer(_producer_properties(options)), survey,
                                       on_progress=progress.show)  # fmt: skip
        except RedriveError as error:
            raise typer.Exit(fail(str(error))) from error
        except KeyboardInterrupt as error:
            note("interrupted: some dead letters were sent back")
            raise typer.Exit(INTERRUPTED) from error
        status = _report(redriven)
        if options.trim and not redriven.failures:
            _trim(options, redriven.trimmed_to(survey, starts))
    if status:
        raise typer.Exit(status)


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
    """Show what would be done, and ask; return whether to do it."""
    if survey.foreign_count:
        note(f"{survey.foreign_count} records of {survey.topic} are no dead letters: they stay")
    if not survey.letter_count:
        print("No dead letter is to be sent back.")
        return False
    rows = [(*place, count) for place, count in sorted(survey.counts.items())]
    title = "Would be sent back without --dry-run:" if options.dry_run else None
    print_table(("GROUP", "TO", "PARTITION", "LETTERS"), rows, title=title)
    if options.dry_run:
        return False
    confirm((), f"Send these {survey.letter_count} records back?", is_confirmed=options.is_confirmed)
    return True


def _report(redriven: "Redriven") -> int:
    repeated = f" {redriven.repeated_count} dead letters were of the same records." if redriven.repeated_count else ""
    print(f"Sent {counted(redriven.count, 'record')} back.{repeated}")
    status = 0
    if redriven.gone:
        first = redriven.gone[0]
        status = fail(
            f"{len(redriven.gone)} dead letters have no record any more, the first at {first.partition}:{first.offset}"
            f" ({first.source_topic}-{first.source_partition}, offset {first.source_offset})"
        )
    if redriven.failures:
        status = fail(f"{len(redriven.failures)} records were not delivered. The first: {redriven.failures[0]}")
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
    print(f"Deleted what was sent back from {len(wanted)} partitions of {options.topic}.")
