"""Record what the group coordinator of Apache Kafka 4.4.0 makes of random share groups.

`python -m tools.record_share_groups` writes tests/golden/share_groups.txt.gz. Each line is an operation on Kafka's own
GroupMetadataManager, or (indented) what came of it. Before an operation a millisecond passes.

    # assignment.interval=1000 max.size=3     a new coordinator, with these keys of group.share
    topics foo:3,bar:1                        the cluster has these topics now; ids are the padded names
    heartbeat m1 0 - foo,bar                  member, epoch (= the last answered, < one less, > far ahead), rack, topics
      answer m1 2 5000 [foo:-]                member, epoch, interval, assignment (-: none; foo:-: no partition of foo)
      error 110 text                          or else what the request is refused with
      record KEY VALUE                        in hexadecimal; a tombstone has no value
      initialize 2 foo:0:-1                   effect: with this state epoch, by topic and partition the start offset
    initialized, refused                      how the share coordinator has answered the last `initialize`
    advance 45000                             so many milliseconds pass; sessions may expire
    alter foo:0:5                             AlterShareGroupOffsets
    delete foo, deleted foo                   DeleteShareGroupOffsets, before and after the states are deleted
      states foo:0,foo:1                      effect: delete these states
    forget foo                                the topic was deleted
    remove                                    DeleteGroups
"""

import gzip
import random
from pathlib import Path

from tools.java_programs import run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "share_groups.txt.gz"

SOURCE = Path(__file__).with_name("ShareGroupDriver.java")
SCRIPTS, STEPS = 60, 60
WIDE_SCRIPTS, MOST_PARTITIONS = 20, 40
"""Scripts whose topics have more partitions than a HashSet has buckets: then their order in it counts."""
TOPICS = ("foo", "bar", "baz")


def main() -> None:
    dice = random.Random(932)
    script = [line for _ in range(SCRIPTS) for line in _script(dice)]
    script += [line for _ in range(WIDE_SCRIPTS) for line in _script(dice, MOST_PARTITIONS)]
    answers = run_java(SOURCE, script)
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{answer}\n" for answer in answers)


def _script(dice: random.Random, most_partitions: int = 4) -> list[str]:
    lines = [f"# assignment.interval={dice.choice((0, 0, 1000))} max.size={dice.choice((3, 200))}"]
    counts = {topic: dice.randint(1, most_partitions) for topic in TOPICS}
    lines.append(f"topics {_counts(counts)}")
    for _ in range(STEPS):
        lines += _step(dice, counts)
    return lines


def _counts(counts: dict[str, int]) -> str:
    return ",".join(f"{topic}:{count}" for topic, count in counts.items()) or "-"


def _step(dice: random.Random, counts: dict[str, int]) -> list[str]:
    kind = dice.choices(
        ("heartbeat", "outcome", "advance", "topics", "offsets", "remove", "empty"), (60, 20, 8, 4, 6, 1, 1)
    )[0]
    if kind == "heartbeat":
        return [_heartbeat(dice)]
    if kind == "outcome":
        return [dice.choice(("initialized", "initialized", "initialized", "refused"))]
    if kind == "advance":
        return [f"advance {dice.choice((500, 1000, 5000, 20000, 31000, 45000))}"]
    if kind == "topics":
        return _change_topics(dice, counts)
    leaves = [f"heartbeat m{number} -1 - -" for number in range(5)]
    if kind == "empty":
        return leaves
    if kind == "remove":
        return [*(leaves if dice.random() < 0.5 else []), "remove"]
    return [*(leaves if dice.random() < 0.4 else []), *_change_offsets(dice)]


def _change_offsets(dice: random.Random) -> list[str]:
    topics = dice.sample([*TOPICS, "none"], dice.randint(1, 2))
    if dice.random() < 0.5:
        return [f"alter {','.join(f'{topic}:{dice.randint(0, 4)}:{dice.randint(0, 9)}' for topic in topics)}"]
    return [f"delete {','.join(topics)}", *dice.sample([f"deleted {','.join(topics)}"], dice.randint(0, 1))]


def _heartbeat(dice: random.Random) -> str:
    epoch = dice.choices(("=", "0", "<", ">", "-1"), (70, 15, 5, 3, 4))[0]
    has_names = epoch == "0" or dice.random() < 0.15
    names = ",".join(dice.sample([*TOPICS, "none"], dice.randint(1, 3))) if has_names else "-"
    rack = dice.choice(("-", "-", "-", "r1"))
    return f"heartbeat m{dice.randrange(5)} {epoch} {rack} {names}"


def _change_topics(dice: random.Random, counts: dict[str, int]) -> list[str]:
    topic = dice.choice(TOPICS)
    if topic in counts and dice.random() < 0.4:
        del counts[topic]
        return [f"topics {_counts(counts)}", f"forget {topic}"]
    counts[topic] = counts.get(topic, 0) + dice.randint(1, 2)
    return [f"topics {_counts(counts)}"]


if __name__ == "__main__":
    main()
