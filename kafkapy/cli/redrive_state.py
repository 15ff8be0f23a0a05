"""What an interrupted or partly failed `groups redrive` has left, for `--resume`: a file for each dead-letter topic.

    $XDG_STATE_HOME/kafkapy/redrive/CLUSTER_ID.TOPIC.json      (~/.local/state without it)
    {"topic_id": "vP3cHWPMQq2-bCVZLTZ3Ng", "group": null, "source": "jobs", "letters": null, "ends": {"0": 7},
     "delivered": {"0": [[0, 2], [4, 5]]}}

`ends`: where the topic ended for that redrive, by partition; `delivered`: offsets of letters that went back, as ranges
whose last number is no longer one of them; `topic_id`: a topic of the same name that was created later has others at
these offsets. The file is written every second or so while letters go back, and deleted when all have gone back. A long
topic name is cut, and ends with a hash.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from kafkapy.cli.dead_letters import Choice, Place, RedriveError, Survey
from kafkapy.cli.state_dir import state_dir
from kafkapy.dataclass import dataclass
from kafkapy.private_file import write_private

MAX_TOPIC: Final = 150
"""Characters in the name of a file, which has 255 at most; a topic has up to 249."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A redrive that is to be resumed: what it chose, up to where, and the letters that have gone back."""

    topic_id: str
    choice: Choice
    ends: dict[int, int]
    delivered: frozenset[Place]


@dataclass(frozen=True, slots=True)
class StateFile:
    """The file of a dead-letter topic."""

    path: Path
    topic_id: str

    @property
    def is_there(self) -> bool:
        """Whether a redrive has left something; False also if the file cannot be looked up."""
        return os.path.exists(self.path)

    def load(self) -> Unfinished | None:
        """Return the letters that a redrive has left, None without any. Raises RedriveError."""
        try:
            return _unfinished(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RedriveError(f"{self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RedriveError(f"{self.path} is damaged: without it a redrive sends all letters") from error

    def save(self, survey: Survey, done: Collection[Place]) -> None:
        """Save which letters of this survey are delivered. Raises RedriveError."""
        choice = survey.choice
        kept = {
            "topic_id": self.topic_id,
            "group": choice.group,
            "source": choice.source_topic,
            "letters": None if choice.places is None else sorted(choice.places),
            "ends": survey.ends,
            "delivered": _ranges(done),
        }
        try:
            write_private(self.path, json.dumps(kept) + "\n")
        except OSError as error:
            raise RedriveError(f"{self.path}: {error.strerror}: what was sent back is not remembered") from error

    def forget(self, choice: Choice) -> None:
        """Delete what a redrive of this choice had left, now that all has gone back, and a damaged file.

        Raises RedriveError.
        """
        if not self.is_there:
            return
        try:
            left = self.load()
        except RedriveError:
            left = None
        if left is not None and left.choice != choice:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise RedriveError(f"{self.path}: {error.strerror}") from error


def path_of(environment: Mapping[str, str], cluster_id: str, topic: str) -> Path:
    """Return where the state of a topic's redrive is kept, by the XDG base directories."""
    name = "".join(each for each in cluster_id if each.isalnum() or each in "-_")  # it comes from the cluster
    if len(topic) > MAX_TOPIC:
        topic = f"{topic[:MAX_TOPIC]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
    return state_dir(environment) / "redrive" / f"{name}.{topic}.json"


def _unfinished(kept: Any) -> Unfinished:
    places = None if kept["letters"] is None else frozenset((int(each[0]), int(each[1])) for each in kept["letters"])
    delivered = frozenset(
        (int(partition), offset)
        for partition, ranges in kept["delivered"].items()
        for first, end in ranges
        for offset in range(first, end)
    )
    ends = {int(partition): int(end) for partition, end in kept["ends"].items()}
    return Unfinished(str(kept["topic_id"]), Choice(kept["group"], kept["source"], places), ends, delivered)


def _ranges(places: Collection[Place]) -> dict[int, list[list[int]]]:
    """Return offsets as ranges, by partition."""
    ranges: dict[int, list[list[int]]] = {}
    for partition, offset in sorted(places):
        some = ranges.setdefault(partition, [])
        if some and some[-1][1] == offset:
            some[-1][1] = offset + 1
        else:
            some.append([offset, offset + 1])
    return ranges
