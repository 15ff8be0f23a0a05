"""Dead letters of share groups (KIP-1191): a dead-letter topic as a list, and letters sent back to where records were.

Read and sent as by `kafkapy groups redrive` (kafkapy/cli/dead_letters.py), within the bounds of a page.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

from kafkapy.cli.dead_letters import (
    Choice,
    Letter,
    RedriveError,
    Survey,
    bounds_of,
    letters_of,
    redrive,
    survey_letters,
)
from kafkapy.cli.output import counted
from kafkapy.config.rules import GROUP
from kafkapy.console import cluster
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.queries import MAX_NAME, MAX_STRING_BYTES
from kafkapy.dataclass import dataclass

MAX_RECORDS: Final = 100_000
"""Of the topic: more are not read for a page, which takes a second for so many."""
MAX_LETTERS: Final = 200
"""On a page."""
MAX_SENT: Final = 10_000
"""Sent back in one go: some seconds."""
CHOSEN: Final = "letter-"
"""The fields of chosen letters: letter-PARTITION-OFFSET."""
TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"
PRODUCER_PROPERTIES: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "allow.auto.create.topics": False,
    "message.timeout.ms": 30_000,
}
"""A record goes back once, and to a topic that is there."""


@dataclass(frozen=True, slots=True)
class LetterPage:
    """What a page shows of a dead-letter topic: where its letters came from, and the first of them."""

    survey: Survey
    letters: Sequence[Letter]


def topic_of_group(brokers: Brokers, group: str) -> str:
    """Return the dead-letter topic of a group, "" if it has none or the cluster does not report it."""
    try:
        configs = cluster.configs(brokers, GROUP, group)
    except ClusterError:
        return ""
    return next((each.value or "" for each in configs if each.name == TOPIC_KEY), "")


def choice_of(fields: Mapping[str, str]) -> Choice:
    """Return which letters a form means: of a group, of a source topic, and the chosen ones unless all are meant.

    Raises BadRequest.
    """
    group, source = fields.get("group", ""), fields.get("source", "")
    if len(group.encode()) > MAX_STRING_BYTES or len(source) > MAX_NAME:
        raise BadRequest("There is no group or topic with so long a name.")
    places = frozenset(_place(name) for name in fields if name.startswith(CHOSEN))
    return Choice(group or None, source or None, places or None)


def _place(name: str) -> tuple[int, int]:
    partition, _, offset = name.removeprefix(CHOSEN).partition("-")
    if not (partition.isdecimal() and offset.isdecimal() and len(partition) < 10 and len(offset) < 20):
        raise BadRequest(f"{name[:50]}: a letter is {CHOSEN}PARTITION-OFFSET.")
    return int(partition), int(offset)


def letter_page(clients: Clients, topic: str, choice: Choice) -> LetterPage:
    """Return the letters of a topic. Raises ClusterError, BadRequest if there are too many for a page."""
    with _reading(clients) as consumer:
        survey = _survey(consumer, topic, choice)
        return LetterPage(survey, list(islice(letters_of(consumer, survey), MAX_LETTERS)))


def plan(clients: Clients, topic: str, choice: Choice) -> Survey:
    """Return what would be sent back. Raises ClusterError, BadRequest."""
    with _reading(clients) as consumer:
        survey = _survey(consumer, topic, choice)
    if not survey.letter_count:
        raise BadRequest("No dead letter is to be sent back.")
    if survey.letter_count > MAX_SENT:
        raise BadRequest(f"At most {MAX_SENT} letters at once: choose a group or a source, or use {_command(topic)}.")
    return survey


def send_back(clients: Clients, survey: Survey) -> str:
    """Send letters back; return what was done. Raises ClusterError if some were not delivered."""
    with _reading(clients) as consumer, closing(clients.consumer()) as lookup:
        redriven = redrive(consumer, lookup, clients.producer(PRODUCER_PROPERTIES), survey)
    done = f"Sent {counted(redriven.count, 'record')} back."
    if redriven.failures:
        raise ClusterError(f"{done} {len(redriven.failures)} were not delivered, the first: {redriven.failures[0]}.")
    if redriven.repeated_count:
        done += f" {redriven.repeated_count} letters were of the same records."
    if redriven.gone:
        done += f" Of {len(redriven.gone)} letters the record is gone."
    return done


def _survey(consumer: Any, topic: str, choice: Choice) -> Survey:
    record_count = sum(end - start for start, end in bounds_of(consumer, topic).values())
    if record_count > MAX_RECORDS:
        raise BadRequest(f"{topic} has {record_count} records, too many for a page: {_command(topic)} reads them.")
    return survey_letters(consumer, topic, choice)


def _command(topic: str) -> str:
    return f"kafkapy groups redrive {topic}"


@contextmanager
def _reading(clients: Clients) -> Iterator[Any]:
    """Yield a consumer; turn its errors into ClusterError."""
    with failures(), closing(clients.consumer()) as consumer:
        try:
            yield consumer
        except RedriveError as error:
            raise ClusterError(f"{error}.") from error
