"""The names of all topics: decoded once while the cluster's response is the same."""

import gc

import pytest

from kafkapy import Broker
from kafkapy.console.brokers import Brokers, ClusterError
from kafkapy.console.settings import Settings
from kafkapy.console.topic_list import MAX_KEPT, TopicList, TopicLists
from kafkapy.console.topics import topic_page
from kafkapy.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from tests.support.one_response import answering


def test_a_list_is_decoded_anew_only_after_the_topics_changed() -> None:
    with Broker() as broker:
        broker.create_topics("orders", partitions=3)
        brokers = Brokers(Settings(servers=broker.bootstrap_servers))
        lists = TopicLists(brokers)
        first = lists.current()
        assert (first.names, first.partition_count, first.offline, first.under_replicated) == (("orders",), 3, 0, 0)
        assert all(lists.current() is first for _ in range(2 * MAX_KEPT))

        broker.create_topics("Trades")
        assert lists.current().names == ("Trades", "orders")
        brokers.close()


def test_only_the_last_list_is_kept() -> None:
    """That of 100,000 topics takes 10 MB."""
    with Broker() as broker:
        brokers = Brokers(Settings(servers=broker.bootstrap_servers))
        lists = TopicLists(brokers)
        before = sum(isinstance(each, TopicList) for each in gc.get_objects())
        for name in ("orders", "trades", "ticks"):
            broker.create_topics(name)
            lists.current()
        assert sum(isinstance(each, TopicList) for each in gc.get_objects()) == before + 1
        brokers.close()


def test_a_topic_deleted_after_it_was_listed_is_left_out_of_the_page() -> None:
    with Broker() as broker:
        broker.create_topics("orders", "trades")
        brokers = Brokers(Settings(servers=broker.bootstrap_servers))
        listed = TopicLists(brokers).current()
        broker.delete_topics("orders")
        page = topic_page(brokers, listed, search="", with_internal=False, number=1)
        assert [row.name for row in page.rows] == ["trades"]
        brokers.close()


def topic(name: str, **fields) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2]),
        MetadataResponsePartition(partition_index=1, leader_id=-1, replica_nodes=[1, 2], isr_nodes=[1]),
    ]
    return MetadataResponseTopic(name=name, partitions=partitions, **fields)


def test_topics_with_an_error_are_not_listed_and_internal_ones_only_if_asked_for() -> None:
    listed = TopicList.of([topic("b"), topic("gone", error_code=3), topic("__a", is_internal=True), topic("A-b")])
    assert listed.names == ("A-b", "__a", "b")
    assert (listed.partition_count, listed.under_replicated, listed.offline) == (6, 3, 3)
    assert listed.matching("", with_internal=False) == ["A-b", "b"]
    assert listed.matching("a", with_internal=True) == ["A-b", "__a"]


def test_a_response_that_is_not_understood_is_told_and_not_kept() -> None:
    frame = (1).to_bytes(4, "big") + b"\0" + b"\xff" * 20  # correlation id and tags of a header, then no Metadata
    with answering(len(frame).to_bytes(4, "big") + frame) as address:
        lists = TopicLists(Brokers(Settings(servers=address)))
        with pytest.raises(ClusterError, match="not understood"):
            lists.current()
