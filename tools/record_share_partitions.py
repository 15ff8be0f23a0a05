"""Record how Apache Kafka's SharePartition answers while members acquire, acknowledge, and are gone.

`python -m tools.record_share_partitions` writes tests/golden/share_partitions.txt.gz, with Apache Kafka 4.4.0's own
class and a clock, a timer and a persister made here. Of share_partition_cases.txt, which has cases of Apache Kafka's
SharePartitionTest (4.3.1) by their names there, it takes the steps and writes anew what comes of them: a case is added
by its steps alone, and recorded by `--cases`. Each line is a step with, after a tab, what came of it:

    # 5 200 30000 0 1 10 12-15:0:1    loaded: delivery limit, record locks, lock in ms, dead letters, renewals allowed;
                                      start offset; persisted batches (offsets:state:count), `-` for none
    c 5 200 30000 0 1                 the group's settings from now on
    a 70 m1 B 10 5 0 0-9,10-12/7t -   at 70 ms m1 acquires: batch-optimised (R: record limit), at most 10, batch size 5;
                                      read from offset 0: batches, with producer id and t (transaction), x (abort), c
                                      (commit); aborted transactions as producer@first offset
    k 70 m1 0-4:1;5-6:2,3             acknowledges: offsets:types
    r 70 m1                           its session ended
    t 90                              the time
    w 95 3 0                          the writes of step 3 end with this error code
    l 95 20                           the log begins at offset 20
    d 95 2                            dead letters number 2 are copied

Answer: result | writes | dead letters | state. Result: offsets acquired with their delivery count; or the error.
Writes: start offset/complete count:offsets:state:count. State: start, end, next fetch offset, complete count, gap's
start, then the batches: their runs (state:count:member, `!` in a transition, @deadline of an acquired one), in {} if
offsets are tracked. Neighbours that say the same are one. An episode ends where Apache Kafka's class fails, or forgets
that a write is under way (archive() of kafkapy/share/in_flight.py).
"""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO

from tools.java_programs import NO_LOG, java_command
from tools.kafka import fetch_kafka

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "share_partitions.txt.gz"
CASES = GOLDEN.with_name("share_partition_cases.txt")
HEADINGS = ("== ", "---- ")
"""Begin a line with the name of a case, and one with the subject of those that follow."""
DRIVER = Path(__file__).with_name("SharePartitionDriver.java")
EPISODES = 240
STEPS = 70
MEMBERS = ("m1", "m2", "m3")


def main() -> None:
    fetch_kafka()
    with (
        java_command(DRIVER, log4j=NO_LOG) as command,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as java,
    ):
        assert java.stdin is not None
        assert java.stdout is not None
        CASES.write_text("".join(case_lines(java.stdin, java.stdout)))
        if "--cases" not in sys.argv:
            with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
                for seed in range(EPISODES):
                    out.writelines(Episode(seed, java.stdin, java.stdout).lines())
        java.stdin.close()


def case_lines(to_java: IO[str], from_java: IO[str]) -> Iterator[str]:
    """Yield the lines of the cases: those with a name or a subject as they are, steps with what comes of them."""
    for line in CASES.read_text().splitlines():
        if line.startswith(HEADINGS):
            yield f"{line}\n"
            continue
        step = line.partition("\t")[0]
        to_java.write(f"{step}\n")
        to_java.flush()
        yield f"{step}\t{from_java.readline()}"


@dataclass
class Episode:
    """A share partition from its load on, and what is known of it from the answers."""

    seed: int
    to_java: IO[str]
    from_java: IO[str]
    log: list[str] = field(default_factory=list)
    """Batches as in a step `a`, in order."""
    now_ms: int = 0
    step_number: int = 0
    writes: list[int] = field(default_factory=list)
    letter_count: int = 0
    letters: list[int] = field(default_factory=list)
    state: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)

    def lines(self) -> list[str]:
        lines = [self.told(self.opening())]
        self.extend_log()
        for _ in range(STEPS):
            line = self.told(self.step())
            if "\t!" in line:  # Apache Kafka's class fails: what it would do afterwards is nothing to go by
                break
            lines.append(line)
        return lines

    def told(self, step: str) -> str:
        self.to_java.write(step + "\n")
        self.to_java.flush()
        answer = self.from_java.readline().rstrip("\n")
        _, writes, letters, state = answer.split(" | ")
        if writes != "-":
            self.writes.append(self.step_number)
        if letters != "-":
            count = len(letters.split(","))
            self.letters.extend(range(self.letter_count, self.letter_count + count))
            self.letter_count += count
        self.state = state.split(" ")
        self.step_number += 1
        return f"{step}\t{answer}\n"

    def settings(self) -> str:
        dice = self.dice
        has_letters = int(self.seed % 3 == 2 or dice.random() < 0.1)
        is_renewing = int(dice.random() < 0.9)
        limits = f"{dice.choice((2, 3, 4, 5, 10))} {dice.choice((20, 50, 500))} {dice.choice((50, 100))}"
        return f"{limits} {has_letters} {is_renewing}"

    def opening(self) -> str:
        dice = self.dice
        start = dice.choice((0, 0, 10))
        batches, offset = [], start
        while self.seed % 2 and dice.random() < 0.8:
            offset += dice.choice((0, 0, 0, 1, 5))
            size = dice.choice((1, 3, 8))
            state = dice.choice((0, 0, 0, 2, 4, 3 if self.seed % 3 == 2 else 0))
            batches.append(f"{offset}-{offset + size - 1}:{state}:{dice.randrange(5)}")
            offset += size
        return f"# {self.settings()} {start} {','.join(batches) or '-'}"

    def extend_log(self) -> None:
        """Write to the log: batches of one producer that aborts or commits, and plain ones; with holes at times."""
        dice = self.dice
        offset = int(self.log[-1].split("/")[0].split("-")[1]) + 1 if self.log else 0
        for _ in range(dice.randrange(1, 7)):
            offset += dice.choice((0,) * 9 + (4,))
            size = dice.choice((1, 2, 5, 10))
            kind = dice.choice(("", "", "", "/7t", "/7t", "/8t", "/7x", "/7c", "/8x")) if self.seed % 4 == 0 else ""
            last = offset if kind[-1:] in ("x", "c") else offset + size - 1
            self.log.append(f"{offset}-{last}{kind}")
            offset = last + 1

    def aborted(self, batches: list[str]) -> str:
        """Return the aborted transactions of the log that begin up to the last of the batches."""
        end = int(batches[-1].split("/")[0].split("-")[1])
        first: dict[str, int] = {}
        found: list[str] = []
        for batch in self.log:
            offsets, _, kind = batch.partition("/")
            producer = kind[:-1]
            if kind.endswith("t"):
                first.setdefault(producer, int(offsets.split("-")[0]))
            elif kind.endswith("x") and producer in first:
                found.append(f"{producer}@{first.pop(producer)}")
            elif kind.endswith("c"):
                first.pop(producer, None)
        return ",".join(each for each in found if int(each.split("@")[1]) <= end) or "-"

    def step(self) -> str:
        dice = self.dice
        self.now_ms += dice.choice((0, 0, 1, 5, 20, 60 if dice.random() < 0.4 else 10))
        kind = dice.choice("aaaaakkkkkrtwwwwdl" + "c" * (dice.random() < 0.2))
        if dice.random() < 0.25:
            self.extend_log()
        if kind == "a":
            return self.acquire() or f"t {self.now_ms}"
        if kind == "k":
            return self.acknowledge() or f"t {self.now_ms}"
        if kind == "r":
            return f"r {self.now_ms} {dice.choice(MEMBERS)}"
        if kind == "w" and self.writes:
            number = self.writes.pop(dice.randrange(len(self.writes)) if dice.random() < 0.3 else 0)
            return f"w {self.now_ms} {number} {dice.choice((0, 0, 0, 0, 15, 11))}"
        if kind == "d" and self.letters:
            return f"d {self.now_ms} {self.letters.pop(0)}"
        if kind == "l" and dice.random() < 0.4 and self.state:
            start = int(self.state[0])
            target = start + dice.choice((1, 2, 3, 10))
            if int(self.log[-1].split("/")[0].split("-")[1]) >= target:
                self.log = [batch for batch in self.log if int(batch.split("/")[0].split("-")[1]) >= target]
                return f"l {self.now_ms} {target}"
        if kind == "c":
            return f"c {self.settings()}"
        return f"t {self.now_ms}"

    def acquire(self) -> str | None:
        dice = self.dice
        fetch_offset = int(self.state[2])
        ahead = [batch for batch in self.log if int(batch.split("/")[0].split("-")[1]) >= fetch_offset]
        batches = ahead[: dice.choice((1, 2, 3, 8))]
        if len(batches) > 2 and dice.random() < 0.1:
            del self.log[self.log.index(batches[0])]  # as compaction does
            del batches[0]
        if not batches:
            return None
        mode = dice.choice("BBR")
        limits = f"{mode} {dice.choice((1, 3, 5, 10, 100))} {dice.choice((1, 4, 10, 100))}"
        who = f"a {self.now_ms} {dice.choice(MEMBERS)} {limits}"
        return f"{who} {fetch_offset} {','.join(batches)} {self.aborted(batches)}"

    def acknowledge(self) -> str | None:
        """Acknowledge what somebody has acquired, mostly by the one who has, and sometimes beside it."""
        dice = self.dice
        acquired: list[tuple[int, int, str]] = []
        for batch in self.state[5:]:
            for run in batch.strip("{}").split(";"):
                offsets, _, rest = run.partition("=")
                code, _, member = rest.split("@")[0].split(":")
                if code == "1":
                    bounds = offsets.split("-")
                    acquired.append((int(bounds[0]), int(bounds[1]), member))
        if not acquired:
            return None
        index = dice.randrange(len(acquired))
        parts, member = [], acquired[index][2]
        for first, last, holder in acquired[index : index + dice.choice((1, 1, 2, 3))]:
            if holder == member or dice.random() < 0.1:
                parts.append(self.part(first, last))
        if dice.random() < 0.05:
            member = dice.choice(MEMBERS)
        return f"k {self.now_ms} {member} {';'.join(parts) or '0-0:1'}"

    def part(self, first: int, last: int) -> str:
        dice = self.dice
        if dice.random() < 0.4:
            first = dice.randint(first, last)
            last = dice.randint(first, last)
        if dice.random() < 0.05:
            last += dice.choice((1, 3))
        types = (1, 1, 1, 2, 2, 2, 3, 4, 0)
        if dice.random() < 0.4:
            weighted = dice.choice((types, (1, 2), (2,), (4, 4, 1)))
            each = [str(dice.choice(weighted)) for _ in range(first, last + 1)]
        else:
            each = [str(dice.choice((*types, 2, 5)) if dice.random() < 0.3 else dice.choice((1, 2)))]
        return f"{first}-{last}:{','.join(each)}"


if __name__ == "__main__":
    main()
