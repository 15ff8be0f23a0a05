"""Record what the group coordinator of Apache Kafka 4.4.0 makes of random streams groups.

`python -m tools.record_streams_groups` writes tests/golden/streams_groups.txt.gz. Each line is an operation on Kafka's
own GroupMetadataManager, or (indented) what came of it. Before an operation a millisecond passes.

    # assignment.interval.ms=1000             a new coordinator, with these keys of group.streams
    topics foo:3,bar:1                        the cluster has these topics now; ids are the padded names
    config num.standby.replicas=1             the group's own keys, without "streams."; - for none
    heartbeat m1 0 1 0 {"processId":"p"}      member, epoch (= the last answered, < one less, > far ahead), version,
                                              tasks (- none reported, 0 nothing, = those last answered), other fields
      answer {...}                            StreamsGroupHeartbeatResponse, version 1
      create g-rep:3:-1                       internal topics to be created, with partitions and replication factor
      error 110 text                          or else what the request is refused with; -1 for what Kafka fails with
      record KEY VALUE                        in hexadecimal; a tombstone has no value
    commit m1 = foo:0,bar:1                   whether the member may commit these partitions at this epoch
      committed
    describe                                  StreamsGroupDescribe
      described {...}
    advance 45000                             so many milliseconds pass; sessions may expire
    remove                                    DeleteGroups
"""

import gzip
import json
import random
from pathlib import Path
from typing import Any

from tools.java_programs import run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "streams_groups.txt.gz"

SOURCE = Path(__file__).with_name("StreamsGroupDriver.java")
SCRIPTS, STEPS = 70, 60
STATIC = {"s0": "i0", "s1": "i0", "s2": "i1"}
"""Member ids that are sent with an instance id: two share one."""
MEMBERS = ("m0", "m1", "m2", "m3", *STATIC)


def main() -> None:
    dice = random.Random(1071)
    script = [line for _ in range(SCRIPTS) for line in _Script(dice).lines()]
    answers = run_java(SOURCE, script)
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{answer}\n" for answer in answers)


def _internal(name: str, partitions: int = 0) -> dict[str, Any]:
    configs = [{"key": "cleanup.policy", "value": "compact"}]
    return {"name": name, "partitions": partitions, "replicationFactor": 0, "topicConfigs": configs}


def _subtopology(number: int, **fields: Any) -> dict[str, Any]:
    lists = ("sourceTopics", "sourceTopicRegex", "stateChangelogTopics", "repartitionSinkTopics")
    empty: dict[str, Any] = {name: [] for name in (*lists, "repartitionSourceTopics", "copartitionGroups")}
    return {"subtopologyId": str(number), **empty, **fields}


def _topologies() -> list[list[dict[str, Any]]]:
    """Return lists of subtopologies: plain, with state, with a repartition topic, a join, one that writes to itself."""
    join = [{"sourceTopics": [0, 1], "sourceTopicRegex": [], "repartitionSourceTopics": []}]
    return [
        [_subtopology(0, sourceTopics=["foo"])],
        [_subtopology(0, sourceTopics=["foo"], stateChangelogTopics=[_internal("g-store")])],
        [
            _subtopology(0, sourceTopics=["foo"], repartitionSinkTopics=["g-rep"]),
            _subtopology(1, repartitionSourceTopics=[_internal("g-rep")], stateChangelogTopics=[_internal("g-store")]),
        ],
        [
            _subtopology(
                0,
                sourceTopics=["foo", "bar"],
                stateChangelogTopics=[_internal("g-store")],
                copartitionGroups=join,
            )
        ],
        [_subtopology(0, repartitionSourceTopics=[_internal("g-loop")], repartitionSinkTopics=["g-loop"])],
    ]


class _Script:
    """One script: a group, mostly of one topology.

    If members have endpoints, all topics fit: Kafka fails to tell endpoints while the topology cannot be configured.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._counts = {"foo": dice.randint(1, 4), "bar": dice.randint(1, 4)}
        topologies = _topologies()
        self._has_endpoints = dice.random() < 0.3
        self._subtopologies = dice.choices(topologies, (2, 6, 8, 3, 0 if self._has_endpoints else 1))[0]
        if self._has_endpoints:
            self._fit_topics()
        self._others = dice.choice(topologies[:4])

    def lines(self) -> list[str]:
        dice = self._dice
        keys: dict[str, int | str] = {
            "assignment.interval.ms": dice.choice((0, 0, 1000)),
            "initial.rebalance.delay.ms": dice.choice((0, 0, 3000)),
            "max.size": dice.choice((3, 200, 200)),
            "num.standby.replicas": dice.choice((0, 1, 1, 2)),
            "num.warmup.replicas": dice.choice((0, 2)),
        }
        if dice.random() < 0.2:
            keys["rack.aware.assignment.tags"] = dice.choice(("zone", "zone,rack"))
        lines = [f"# {' '.join(f'{key}={value}' for key, value in keys.items())}", self._topics()]
        for _ in range(STEPS):
            lines += self._step()
        return lines

    def _topics(self) -> str:
        return f"topics {','.join(f'{topic}:{count}' for topic, count in self._counts.items()) or '-'}"

    def _step(self) -> list[str]:
        dice = self._dice
        kinds = ("heartbeat", "advance", "topics", "config", "commit", "describe", "empty", "remove")
        kind = dice.choices(kinds, (70, 9, 7, 2, 6, 4, 1, 1))[0]
        if kind == "heartbeat":
            return [self._heartbeat()]
        if kind == "advance":
            return [f"advance {dice.choice((500, 1000, 3000, 5000, 20000, 31000, 45000))}"]
        if kind == "topics":
            return self._change_topics()
        if kind == "config":
            return [f"config {dice.choice(('-', 'num.standby.replicas=1', 'session.timeout.ms=50000'))}"]
        if kind == "commit":
            topics = ",".join(f"{dice.choice(('foo', 'bar', 'g-rep'))}:{dice.randrange(4)}" for _ in range(2))
            return [f"commit {dice.choice(MEMBERS)} {dice.choice(('=', '<', '<', '<', '>'))} {topics}"]
        if kind == "describe":
            return ["describe"]
        leaves = [self._leave(member) for member in MEMBERS]
        return leaves if kind == "empty" else [*(leaves if dice.random() < 0.5 else []), "remove"]

    def _leave(self, member: str, epoch: int = -1) -> str:
        fields = {"instanceId": STATIC[member]} if member in STATIC else {}
        return f"heartbeat {member} {epoch} 1 - {json.dumps(fields)}"

    def _heartbeat(self) -> str:
        dice = self._dice
        member = dice.choice(MEMBERS)
        epoch = dice.choices(("=", "0", "<", ">", "leave"), (65, 25, 4, 1, 4))[0]
        if epoch == "leave":
            return self._leave(member, dice.choice((-1, -2, -2)) if member in STATIC else -1)
        fields: dict[str, Any] = {"instanceId": STATIC[member]} if member in STATIC else {}
        if epoch == "0":
            fields |= self._join(member)
        tasks = "0" if epoch == "0" else dice.choices(("=", "-", "0"), (70, 20, 10))[0]
        if epoch != "0" and dice.random() < 0.03:
            fields |= {name: [] for name in ("activeTasks", "standbyTasks", "warmupTasks")}
            fields["activeTasks"] = [{"subtopologyId": dice.choice(("0", "9")), "partitions": [dice.choice((0, 7))]}]
        if dice.random() < 0.1:
            offset = {"subtopologyId": "0", "partition": dice.randrange(2), "offset": dice.randrange(100)}
            fields["taskOffsets"] = [offset] * dice.choices((1, 2), (9, 1))[0]
        if dice.random() < 0.2:
            fields["endpointInformationEpoch"] = dice.randrange(4)
        if dice.random() < 0.03:
            fields["processId"] = f"p{dice.randrange(3)}"
        if dice.random() < 0.02:
            fields["shutdownApplication"] = True
        return f"heartbeat {member} {epoch} {dice.choice((0, 1, 1))} {tasks} {json.dumps(fields)}"

    def _join(self, member: str) -> dict[str, Any]:
        dice = self._dice
        is_other = dice.random() < 0.05
        subtopologies = self._others if is_other else self._subtopologies
        fields: dict[str, Any] = {
            "rebalanceTimeoutMs": 30_000,
            "topology": {"epoch": dice.choices((0, 1, 2), (5, 90, 5))[0], "subtopologies": subtopologies},
            "processId": f"p{MEMBERS.index(member) // 2}",
        }
        if self._has_endpoints and dice.random() < 0.6:
            fields["userEndpoint"] = {"host": member, "port": 8080}
        if dice.random() < 0.4:
            fields["clientTags"] = [{"key": "zone", "value": dice.choice("ab")}]
        if dice.random() < 0.1:
            fields["rackId"] = "r1"
        return fields

    def _change_topics(self) -> list[str]:
        """Delete, create or expand a topic; mostly have all topics as they should be."""
        dice, counts = self._dice, self._counts
        topic = dice.choice(("foo", "bar", "g-rep", "g-store"))
        if topic in counts and dice.random() < 0.3 and not self._has_endpoints:
            del counts[topic]
        else:
            counts[topic] = counts.get(topic, 0) + dice.randint(1, 2)
        if "foo" in counts and (self._has_endpoints or dice.random() < 0.7):
            self._fit_topics()
        return [self._topics()]

    def _fit_topics(self) -> None:
        for topic in ("bar", "g-rep", "g-store"):
            self._counts[topic] = self._counts["foo"]


if __name__ == "__main__":
    main()
