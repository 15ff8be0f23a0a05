"""Which batch may be claimed after which, and how it is cut: D1 of the transactional sink's proof."""

import shutil
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigEntry, ConfigResource

from spark_jobs import sink, transactional_sink
from spark_jobs.errors import JobError
from spark_jobs.transactional_sink import Note, SinkError, TransactionalSink, next_claim

SINK = TransactionalSink("n", "t", {}, partitions=3)
NOW_MS = 1_000_000_000
DAY_MS = 86_400_000
BEFORE = Note("q", 4, 2, "run", NOW_MS - DAY_MS)


def test_the_first_batch_and_the_next_one_are_cut_as_the_sink_says() -> None:
    assert next_claim(SINK, None, "q", 0, NOW_MS) == Note("q", 0, 3, "", NOW_MS)
    assert next_claim(SINK, BEFORE, "q", 5, NOW_MS) == Note("q", 5, 3, "", NOW_MS)
    assert next_claim(replace(SINK, first_batch=7), None, "q", 7, NOW_MS).batch == 7


def test_a_batch_that_comes_again_keeps_its_cut_and_its_age() -> None:
    assert next_claim(SINK, BEFORE, "q", 4, NOW_MS) == BEFORE


@pytest.mark.parametrize(
    ("before", "query", "batch_id", "told"),
    [
        (None, "q", 3, "batch 3 is the first that n is to write, and no batch before it is noted in Kafka"),
        (BEFORE, "p", 5, "the transactional id n belongs to query q, this is query p"),
        (BEFORE, "q", 3, "n has written batch 4, and the checkpoint goes on with batch 3"),
        (BEFORE, "q", 6, "n has written batch 4, and the checkpoint goes on with batch 6"),
        (replace(BEFORE, since_ms=NOW_MS - 7 * DAY_MS), "q", 4, "batch 4 of n was begun 168 hours ago"),
    ],
)
def test_what_does_not_follow_is_refused_in_one_line(before: Note | None, query: str, batch_id: int, told: str) -> None:
    with pytest.raises(SinkError, match=told) as error:
        next_claim(SINK, before, query, batch_id, NOW_MS)
    assert "\n" not in str(error.value)


def test_a_first_batch_whose_notes_may_have_expired_is_refused() -> None:
    old_ms = NOW_MS - 7 * DAY_MS
    with pytest.raises(
        SinkError, match=r"batch 0 of n was begun 168 hours ago.* empty checkpoint and t, set takes_over"
    ):
        next_claim(SINK, None, "q", 0, NOW_MS, planned_ms=old_ms)
    assert next_claim(SINK, None, "q", 0, NOW_MS, planned_ms=NOW_MS - DAY_MS).batch == 0
    assert next_claim(replace(SINK, first_batch=7), None, "q", 7, NOW_MS, planned_ms=old_ms).batch == 7


def test_an_old_batch_goes_on_where_it_is_named() -> None:
    old = replace(BEFORE, since_ms=NOW_MS - 7 * DAY_MS)
    assert next_claim(replace(SINK, first_batch=4), old, "q", 4, NOW_MS) == old


def test_a_job_names_its_own_keys() -> None:
    source = Path(transactional_sink.__file__).read_text()
    assert [name for name in sink.KEYS if name not in source] == []
    with pytest.raises(JobError, match="set first_transactional_batch to 3"), sink.as_job_errors():
        next_claim(SINK, None, "q", 3, NOW_MS)


class Admin:
    """Of two brokers, the second of which has no key of Apache Kafka's, as other makers' brokers may."""

    brokers = (1, 2)

    def __init__(self, _: dict[str, str]) -> None: ...

    def list_topics(self, timeout: float) -> "Admin":
        return self

    def describe_configs(self, asked: list[ConfigResource], request_timeout: float) -> dict[ConfigResource, object]:
        response: Future[dict[str, ConfigEntry]] = Future()
        has_key = asked[0].name == "1"
        response.set_result({sink.RETENTION: ConfigEntry(sink.RETENTION, "70")} if has_key else {})
        return {asked[0]: response}


def test_a_broker_that_does_not_say_how_long_notes_live_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "AdminClient", Admin)
    assert sink.shortest_note_life_s({}) == 3_600


@pytest.mark.parametrize("note", [BEFORE, Note("q", 0, 1)])
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    assert Note.of(note.to_json()) == note


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '["q", 1, 2, "run", 0, 5]', "x"])
def test_what_is_no_note_is_none(text: str | None) -> None:
    assert Note.of(text) is None


def test_the_file_runs_without_the_rest_of_the_repository(tmp_path: Path) -> None:
    shutil.copy(transactional_sink.__file__, tmp_path)
    program = (
        "import sys, transactional_sink as sink\n"
        "print(sink.next_claim(sink.TransactionalSink('n', 't', {}), None, 'q', 0, 5).to_json())\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('spark_jobs', 'kafkapy', 'tools')])\n"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ['["q", 0, 4, "", 5]', "[]"]
