"""What the overview says needs attention: each kind, its urgency and whom it names."""

from kafkapy.console import attention
from kafkapy.console.cluster import LogDir
from kafkapy.console.topic_list import TopicList
from kafkapy.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic


def partition(number: int, leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number, leader_id=leader, replica_nodes=replicas, isr_nodes=isr, offline_replicas=[]
    )


def topics(**partitions: list[MetadataResponsePartition]) -> TopicList:
    return TopicList.of(MetadataResponseTopic(name=name, partitions=each) for name, each in partitions.items())


def said(concerns) -> list[tuple[str, str, list[str]]]:
    return [(each.level, each.text.partition(":")[0], [name for name, _ in each.names]) for each in concerns]


def test_partitions_are_offline_under_replicated_below_and_at_min_isr() -> None:
    known = topics(
        gone=[partition(0, -1, [1, 2], [])],
        below=[partition(0, 1, [1, 2, 3], [1])],
        at=[partition(0, 1, [1, 2, 3], [1, 2]), partition(1, 1, [1, 2, 3], [1, 3])],
        spare=[partition(0, 1, [1, 2, 3], [1, 2])],
        whole=[partition(0, 1, [1], [1])],
    )
    min_isr = {"below": 2, "at": 2, "spare": 1}
    assert said(attention.of_topics(known, min_isr)) == [
        ("bad", "1 partition is offline", ["gone"]),
        ("warn", "5 partitions are under-replicated", ["at", "below", "spare"]),
        ("bad", "1 partition is below min.insync.replicas", ["below"]),
        ("warn", "2 partitions are at min.insync.replicas", ["at"]),
    ]
    assert said(attention.of_topics(topics(whole=[partition(0, 1, [1], [1])]), {})) == []


def test_many_names_are_counted() -> None:
    known = topics(**{f"t{number}": [partition(0, -1, [1], [])] for number in range(9)})
    (offline, _) = attention.of_topics(known, {})
    assert ([name for name, _ in offline.names], offline.more) == (["t0", "t1", "t2", "t3", "t4"], 4)


def test_brokers_that_do_not_answer_put_what_they_lead_at_risk() -> None:
    (one,) = attention.of_brokers({3}, 2)
    assert (one.level, one.names) == ("bad", (("3", "/broker?id=3"),))
    assert "A broker does not answer: 2 partitions are at risk" in one.text
    (two,) = attention.of_brokers({3, 1}, 0)
    assert two.text == "2 brokers do not answer."
    assert list(attention.of_brokers(set(), 0)) == []


def test_lag_that_does_not_fall_is_named_the_largest_first() -> None:
    lags = {
        "grows": [(0.0, 10.0), (70.0, 20.0)],
        "stands": [(0.0, 500.0), (70.0, 500.0)],
        "falls": [(0.0, 900.0), (70.0, 899.0)],
        "new": [(60.0, 5.0), (70.0, 9.0)],
        "none": [(0.0, 0.0), (70.0, 0.0)],
        "begins": [(0.0, 0.0), (70.0, 7.0)],
        "": [],
    }
    (one,) = attention.of_lags(lags)
    assert [name for name, _ in one.names] == ["stands (500)", "grows (20)"]
    assert one.text.startswith("2 groups")


def test_transactions_and_disks() -> None:
    (one,) = attention.of_transactions([{"transactional_id": "t1"}])
    assert one.names == (("t1", "/transaction?id=t1"),)

    def disk(path: str, usable: int, error: str | None = None, *, is_silent: bool = False) -> LogDir:
        return LogDir(1, path, error, 100 if error is None else -1, usable, 0, 0, is_silent)

    disks = [disk("/a", 5), disk("/b", 15), disk("/c", 50), disk("/d", -1, "KAFKA_STORAGE_ERROR")]
    silent = disk("?", -1, "No broker answers", is_silent=True)
    assert said(attention.of_disks([*disks, silent])) == [
        ("bad", "A log directory is offline.", ["/d of 1 (KAFKA_STORAGE_ERROR)"]),
        ("bad", "A disk is used by 90 % or more.", ["/a of 1 (95 %)"]),
        ("warn", "A disk is used by 80 % or more.", ["/b of 1 (85 %)"]),
    ]
