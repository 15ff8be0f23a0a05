"""Dead letters of share groups (KIP-1191): a dead-letter topic as a list, and letters sent back to where records were.

Read and sent as by `kafkapy groups redrive` (kafkapy/cli/dead_letters.py), within the bounds of a page.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

from kafkapy.cli.dead_letters import (
    Choice,
    Letter,
    RedriveError,
    Redriven,
    Survey,
    bounds_of,
    letters_of,
    redrive,
    survey_letters,
)
from kafkapy.cli.output import counted, not_delivered
from kafkapy.cli.redrive_lock import only_redrive
from kafkapy.config.rules import GROUP
from kafkapy.console import cluster
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.queries import MAX_NAME, MAX_STRING_BYTES
from kafkapy.dataclass import dataclass

MAX_RECORDS: Final = 100_000
"""Records of the topic that are read for a page, which takes a second."""
MAX_LETTERS: Final = 200
"""On a page."""
MAX_SENT: Final = 10_000
"""Sent back in one go: some seconds."""
MAX_UNFINISHED: Final = 20
"""Each of at most MAX_RECORDS letters."""
CHOSEN: Final = "letter-"
"""The fields of chosen letters: letter-PARTITION-OFFSET."""
TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"
PRODUCER_PROPERTIES: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "allow.auto.create.topics": False,
    "message.timeout.ms": 30_000,
}
"""A record goes back once, and to a topic that is there."""

logger = logging.getLogger("kafkapy.console.dead_letters")


@dataclass(frozen=True, slots=True)
class LetterPage:
    """A dead-letter topic for a page: the sources of its letters, and the first letters."""

    survey: Survey
    letters: Sequence[Letter]


class UnfinishedRedrives:
    """Which letters went back although not all did: the same form, sent again, sends the others alone.

    Kept by topic and choice until all have gone back, of the last MAX_UNFINISHED, in this process alone.
    """

    def __init__(self) -> None:
        self._surveys: dict[tuple[str, Choice], Survey] = {}
        self._turns: dict[str, int] = {}
        """By topic: a number that rises when a redrive begins, and when it ends; odd while one runs."""
        self._lock = threading.Lock()  # changes run on threads

    def turn_of(self, topic: str) -> int:
        """Return the argument of `taking`; to be called before the redrive is planned."""
        with self._lock:
            return self._turns.get(topic, 0)

    @contextmanager
    def taking(self, topic: str, turn: int) -> Iterator[None]:
        """Let one redrive of a topic run at a time: two clicks on a button send a form twice.

        Raises BadRequest if another one runs, or has run since this one was planned.
        """
        with self._lock:
            if turn % 2 or self._turns.get(topic, 0) != turn:
                raise BadRequest(f"Letters of {topic} are being sent back, or were just now: look at what is left.")
            self._turns[topic] = turn + 1
        try:
            yield
        finally:
            with self._lock:
                self._turns[topic] += 1

    def of(self, topic: str, choice: Choice) -> Survey | None:
        with self._lock:
            return self._surveys.get((topic, choice))

    def record(self, survey: Survey, redriven: Redriven) -> None:
        """Keep which letters of a survey are delivered, or drop that if none is left to be sent."""
        with self._lock:
            self._surveys.pop((survey.topic, survey.choice), None)
            if redriven.failures:
                left = dataclasses.replace(survey, delivered=frozenset(redriven.done), sources_delivered={})
                self._surveys[survey.topic, survey.choice] = left
            while len(self._surveys) > MAX_UNFINISHED:
                del self._surveys[next(iter(self._surveys))]


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


def plan(clients: Clients, topic: str, choice: Choice, left: Survey | None = None) -> Survey:
    """Return the survey of letters to send. Raises ClusterError, BadRequest.

    left: an earlier try of the same, which failed in part; what it delivered is not sent again.
    """
    with _reading(clients) as consumer:
        survey = _survey(consumer, topic, choice, left)
    if not survey.letter_count:
        raise BadRequest("No dead letter is to be sent back.")
    if survey.letter_count > MAX_SENT:
        raise BadRequest(f"At most {MAX_SENT} letters at once: choose a group or a source, or use {_command(topic)}.")
    return survey


def send_back(clients: Clients, survey: Survey, unfinished: UnfinishedRedrives) -> str:
    """Send letters back; return what was done.

    Raises ClusterError if some were not delivered, BadRequest if another redrive of the topic runs, also elsewhere.
    """
    try:
        with failures(), only_redrive(clients, survey.topic, logger.warning) as check:
            return _send_back(clients, survey, unfinished, check)
    except RedriveError as error:
        raise BadRequest(f"{error}.") from error


def _send_back(clients: Clients, survey: Survey, unfinished: UnfinishedRedrives, check: Callable[[], None]) -> str:
    redriven = Redriven.before(survey)
    producer = clients.producer(PRODUCER_PROPERTIES)
    try:
        with _reading(clients) as consumer, closing(clients.consumer()) as lookup:
            redrive(consumer, lookup, producer, survey, lambda _: check(), redriven)
    except ClusterError as error:
        redriven.failures.append(str(error).removesuffix("."))
    unfinished.record(survey, redriven)
    done = f"Sent {counted(redriven.count, 'record')} back."
    if redriven.failures:
        raise ClusterError(
            f"{done} {not_delivered(len(redriven.failures))}, the first: {redriven.failures[0]}. "
            "Sent again, this form sends back what is left alone."
        )
    if redriven.repeated_count:
        done += f" {redriven.repeated_count} letters were of the same records."
    if redriven.gone:
        done += f" Of {len(redriven.gone)} letters the record is gone."
    return done


def _survey(consumer: Any, topic: str, choice: Choice, left: Survey | None = None) -> Survey:
    bounds = bounds_of(consumer, topic)
    record_count = sum(end - start for start, end in bounds.values())
    if record_count > MAX_RECORDS:
        raise BadRequest(f"{topic} has {record_count} records, too many for a page: {_command(topic)} reads them.")
    is_same = left is not None and all(bounds.get(each, (0, -1))[1] >= end for each, end in left.ends.items())
    if left is None or not is_same:  # the topic was made again
        return survey_letters(consumer, topic, choice)
    return survey_letters(consumer, topic, choice, ends=left.ends, delivered=left.delivered)


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
