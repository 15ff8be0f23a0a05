"""Share partitions against Apache Kafka's own SharePartition (tools/record_share_partitions.py tells the format)."""

import gzip
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.fetched import AbortedTransaction, AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.in_flight_batch import InFlightBatch, Run
from kafkapy.share.partition import AcknowledgeOutcome, SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetter, DeadLetterCause, PendingWrite, persister_refusal
from kafkapy.share.persister import SharePartitionKey, StateBatch, StateReadResult
from kafkapy.share.record_state import RecordState

GOLDEN = Path(__file__).parent / "share_partitions.txt.gz"


def cases() -> dict[str, list[str]]:
    """Return the steps of each case of Apache Kafka's SharePartitionTest, by its name there."""
    found: dict[str, list[str]] = {}
    for line in (GOLDEN.parent / "share_partition_cases.txt").read_text().splitlines():
        if line.startswith("== "):
            steps = found[line.removeprefix("== ")] = []
        elif not line.startswith("---- "):  # the subject of the cases that follow
            steps.append(line)
    return found


CASES = cases()
KEY = SharePartitionKey("g", bytes(16), 0)


def episodes() -> Iterator[list[str]]:
    lines = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    begins = [index for index, line in enumerate(lines) if line.startswith("#")]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        yield lines[begin:end]


class Replayed:
    """A share partition of ours that is given the recorded steps."""

    def __init__(self, opening: str) -> None:
        fields = opening.split(" ")
        self.partition = SharePartition(KEY, 0, settings(fields))
        self.writes: list[list[PendingWrite]] = []
        self.letters: list[list[DeadLetter]] = []
        self.new_writes: list[PendingWrite] = []
        self.new_letters: list[DeadLetter] = []
        self.partition.begin_load()
        batches = [] if fields[7] == "-" else [StateBatch(*map(int, numbers(text))) for text in fields[7].split(",")]
        read = StateReadResult(bytes(16), 0, state_epoch=3, start_offset=int(fields[6]), state_batches=batches)
        assert self.partition.load(read, 0) is None
        self.new_letters = self.partition.unfinished_dead_letters()

    def step(self, text: str) -> str:
        fields = text.split(" ")
        self.new_writes, self.new_letters = [], []
        if fields[0] == "c":
            self.partition.configure(settings(fields))
            return self.respond("-")
        now_ms = int(fields[1])
        self.wrote(self.partition.expire(now_ms))
        return self.respond(self.do(fields, now_ms))

    def do(self, fields: list[str], now_ms: int) -> str:
        partition = self.partition
        match fields[0]:
            case "a":
                return self.acquire(fields, now_ms)
            case "k":
                batches = [acknowledgement(text) for text in fields[3].split(";")]
                return self.outcome(partition.acknowledge(fields[2], batches, now_ms))
            case "r":
                return self.outcome(AcknowledgeOutcome(write=partition.release(fields[2], now_ms)))
            case "w":
                code = int(fields[3])
                refusal = persister_refusal(code, None) if code != ErrorCode.NONE else None
                for write in self.writes[int(fields[2])]:
                    self.new_letters += partition.finish_write(write, refusal, now_ms).dead_letters
            case "l":
                partition.move_log_start(int(fields[2]))
            case "d":
                for letter in self.letters[int(fields[2])]:
                    self.wrote(partition.archive_copied(letter))
        return "-"

    def acquire(self, fields: list[str], now_ms: int) -> str:
        aborted = (
            []
            if fields[8] == "-"
            else [AbortedTransaction(*map(int, text.split("@"))) for text in fields[8].split(",")]
        )
        fetched = FetchedRecords(int(fields[6]), [fetched_batch(text) for text in fields[7].split(",")], aborted)
        limits = AcquireLimits(int(fields[4]), int(fields[5]), is_record_limit=fields[3] == "R")
        acquired = self.partition.acquire(fields[2], fetched, limits, now_ms)
        return ",".join(f"{part.first_offset}-{part.last_offset}:{part.delivery_count}" for part in acquired) or "-"

    def outcome(self, outcome: AcknowledgeOutcome) -> str:
        if outcome.refusal is not None:
            return f"{outcome.refusal.error_code.name}:{outcome.refusal.message}"
        self.wrote(outcome.write)
        return "ok" if outcome.write is None else "wait"

    def wrote(self, write: PendingWrite | None) -> None:
        if write is not None:
            self.new_writes.append(write)

    def respond(self, result: str) -> str:
        self.writes.append(self.new_writes)
        groups = grouped_letters(self.new_letters)
        self.letters += groups
        letters = [
            f"{group[0].first_offset}-{group[-1].last_offset}:{group[0].delivery_count}:{cause_text(group[0])}"
            for group in groups
        ]
        return f"{result} | {written(self.new_writes)} | {','.join(letters) or '-'} | {state(self.partition)}"


def numbers(text: str) -> list[str]:
    return text.replace("-", ":").split(":")


def settings(fields: list[str]) -> PartitionSettings:
    limit, locks, lock_ms, has_letters, is_renewing = map(int, fields[1:6])
    return PartitionSettings(limit, locks, lock_ms, bool(is_renewing), bool(has_letters))


def fetched_batch(text: str) -> FetchedBatch:
    offsets, _, kind = text.partition("/")
    first, last = map(int, offsets.split("-"))
    if not kind:
        return FetchedBatch(first, last)
    return FetchedBatch(first, last, int(kind[:-1]), is_transactional=True, is_abort_marker=kind[-1] == "x")


def acknowledgement(text: str) -> AcknowledgementBatch:
    first, last, types = numbers(text)
    return AcknowledgementBatch(int(first), int(last), [int(each) for each in types.split(",")])


def grouped_letters(letters: list[DeadLetter]) -> list[list[DeadLetter]]:
    groups: list[list[DeadLetter]] = []
    for letter in sorted(letters, key=lambda letter: letter.first_offset):
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and before.last_offset + 1 == letter.first_offset
            and (before.delivery_count, before.cause) == (letter.delivery_count, letter.cause)
        ):
            groups[-1].append(letter)
        else:
            groups.append([letter])
    return groups


def cause_text(letter: DeadLetter) -> str:
    return "reject" if letter.cause is DeadLetterCause.CLIENT_REJECT else "count"


def written(writes: list[PendingWrite]) -> str:
    if not writes:
        return "-"
    merged: list[StateBatch] = []
    for batch in sorted(batch for write in writes for batch in write.state_batches):
        before = merged[-1] if merged else None
        if before is not None and before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            merged[-1] = StateBatch(before.first_offset, *batch[1:])
        else:
            merged.append(batch)
    text = ",".join(f"{first}-{last}:{code}:{count}" for first, last, code, count in merged)
    return f"{writes[-1].start_offset}/{writes[-1].delivery_complete_count}:{text}"


def state(partition: SharePartition) -> str:
    records = partition.records
    gap = records.gap_window.gap_start_offset if records.gap_window is not None else -1
    next_offset = partition.next_fetch_offset()
    head = f"{records.start_offset} {records.end_offset} {next_offset} {records.delivery_complete_count} {gap}"
    return " ".join([head, *(batch_text(batch) for batch in records)])


def batch_text(batch: InFlightBatch) -> str:
    runs = [
        (min(run.first_offset for run in same), max(run.last_offset for run in same), text)
        for text, same in ((text, list(group)) for text, group in groupby(batch.runs, run_text))
    ]
    text = ";".join(f"{first}-{last}={text}" for first, last, text in runs)
    return text if batch.is_whole else f"{{{text}}}"


def run_text(run: Run) -> str:
    text = f"{run.state.value}:{run.delivery_count}:{run.member_id}{'!' if run.transition is not None else ''}"
    return f"{text}@{run.deadline_ms}" if run.state is RecordState.ACQUIRED and run.deadline_ms is not None else text


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_outcome_that_it_has_in_apache_kafka(name: str) -> None:
    opening, *steps = (line.split("\t") for line in CASES[name])
    replayed = Replayed(opening[0])
    assert replayed.respond("-") == opening[1]
    for step, response in steps:
        assert replayed.step(step) == response, step


@pytest.mark.parametrize("part", range(8))
def test_each_step_has_the_outcome_that_it_has_in_apache_kafka(part: int) -> None:
    for number, episode in enumerate(episodes()):
        if number % 8 != part:
            continue
        opening, response = episode[0].split("\t")
        replayed = Replayed(opening)
        assert replayed.respond("-") == response, (number, opening)
        for index, line in enumerate(episode[1:], 1):
            step, response = line.split("\t")
            assert replayed.step(step) == response, (number, index, step, episode[index - 1])
