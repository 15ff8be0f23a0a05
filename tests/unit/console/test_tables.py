"""Lists of topics and groups: sorted by any column, filtered, paged, and all of it in the URL."""

import re

import confluent_kafka as kafka
import pytest
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console import group_list, topics
from kafkapy.console.app import new_app
from kafkapy.console.brokers import BadRequest, Brokers
from kafkapy.console.client import Clients
from kafkapy.console.groups import GroupRow
from kafkapy.console.lags import LagSamples, LagWatch
from kafkapy.console.render import breaks
from kafkapy.console.settings import Settings
from kafkapy.console.tables import Order, order_of, ordered, shown_of
from kafkapy.console.topic_list import TopicLists

OWN = "http://127.0.0.1:8080"
RECORDS = {"small": 1, "middle": 20, "large": 300}


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        producer = kafka.Producer(running.client_config())
        for name, count in RECORDS.items():
            running.create_topics(name, partitions=1)
            for _ in range(count):
                producer.produce(name, "x" * 10)
        assert producer.flush(30) == 0
        for group, topic, offset in (("of-large", "large", 10), ("of-small", "small", 1), ("of-middle", "middle", 5)):
            consumer = kafka.Consumer({**running.client_config(), "group.id": group})
            consumer.commit(offsets=[kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
            consumer.close()
        yield running


@pytest.fixture(scope="module")
def page(broker):
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as client:
        yield client


def names(html: str, of: str) -> list[str]:
    return re.findall(rf'<th scope="row"><a href="/{of}\?name=([\w-]+)"', html)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["large", "middle", "small"]),
        ("?desc=1", ["small", "middle", "large"]),
        ("?sort=records", ["small", "middle", "large"]),
        ("?sort=records&desc=1", ["large", "middle", "small"]),
        ("?sort=size&desc=1&q=m", ["middle", "small"]),
    ],
)
def test_topics_are_sorted_by_a_column(page, query, expected) -> None:
    assert names(page.get(f"/topics{query}").text, "topic") == expected


@pytest.mark.parametrize("key", topics.KEYS)
def test_each_column_of_topics_sorts(page, key) -> None:
    shown = page.get(f"/topics?sort={key}").text
    assert set(names(shown, "topic")) == set(RECORDS)
    assert shown.count('aria-sort="ascending"') == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?sort=lag", ["of-small", "of-middle", "of-large"]),
        ("?sort=lag&desc=1&q=l", ["of-large", "of-middle", "of-small"]),
        ("?sort=name&desc=1", ["of-small", "of-middle", "of-large"]),
    ],
)
def test_groups_are_sorted_by_a_column(page, query, expected) -> None:
    assert names(page.get(f"/groups{query}").text, "group") == expected


@pytest.mark.parametrize("key", group_list.KEYS)
def test_each_column_of_groups_sorts(page, key) -> None:
    assert len(names(page.get(f"/groups?sort={key}").text, "group")) == 3


def test_a_group_has_its_members_topics_and_lag(page) -> None:
    row = re.search(r">of-<wbr>large</a></th>(.*?)</tr>", page.get("/groups").text, re.DOTALL)
    assert row is not None
    assert re.findall(r'<td class="num[^>]*>([^<]*)<', row[1]) == ["0", "1", "290"]
    assert 'title="large"' in row[1]


def test_what_is_no_column_is_refused(page) -> None:
    assert page.get("/topics?sort=colour").status_code == 400
    assert page.get("/groups?sort=colour").status_code == 400
    with pytest.raises(BadRequest, match="one of a, b"):
        order_of({"sort": "c"}, ("a", "b"))


def test_a_link_to_a_column_keeps_the_search(page) -> None:
    shown = page.get("/topics?q=m&internal=1&sort=size").text
    assert "/topics?sort=records&amp;desc=1&amp;q=m&amp;internal=1" in shown
    assert "/topics?sort=size&amp;desc=1&amp;q=m&amp;internal=1" in shown, "the other order of the same column"


def test_what_is_not_known_comes_last_in_either_order() -> None:
    assert ordered([3, None, 1], lambda each: each, is_descending=False) == [1, 3, None]
    assert ordered([3, None, 1], lambda each: each, is_descending=True) == [3, 1, None]


def test_a_page_beyond_the_last_is_the_last() -> None:
    assert shown_of(list(range(120)), 9) == (list(range(100, 120)), 3, 3)
    assert shown_of([], 1) == ([], 1, 1)


def test_too_many_are_sorted_by_name_and_said_so(broker, monkeypatch) -> None:
    settings = Settings(servers=broker.bootstrap_servers)
    brokers = Brokers(settings)
    monkeypatch.setattr(topics, "MAX_SORTED", 2)
    monkeypatch.setattr(group_list, "MAX_SORTED", 2)
    listed = TopicLists(brokers).current()
    found = topics.topic_page(brokers, listed, search="", with_internal=False, number=1, order=Order("size", True))
    assert ([each.name for each in found.rows], "by size" in found.note) == (["small", "middle", "large"], True)
    rows = [GroupRow(name, "Classic", "Empty") for name in ("of-large", "of-middle", "of-small")]
    clients = Clients(settings, brokers)
    groups = group_list.group_page(brokers, clients, rows, search="", order=Order("lag", False), number=1)
    assert ([each.name for each in groups.rows], "by lag" in groups.note) == (
        ["of-large", "of-middle", "of-small"],
        True,
    )
    brokers.close()


def test_the_lag_of_a_topic_is_that_of_its_groups(broker) -> None:
    settings = Settings(servers=broker.bootstrap_servers)
    brokers, lags = Brokers(settings), LagSamples()
    LagWatch(Clients(settings, brokers), lags).measure()
    assert lags.topics() == {"large": 290, "middle": 15, "small": 0}
    listed = TopicLists(brokers).current()
    page = topics.topic_page(
        brokers, listed, search="", with_internal=False, number=1, order=Order("lag", True), lags=lags.topics()
    )
    assert [(each.name, each.lag) for each in page.rows] == [("large", 290), ("middle", 15), ("small", 0)]
    brokers.close()


def test_names_break_after_dots_and_dashes_and_are_escaped() -> None:
    assert breaks("a.b-<c>") == "a.<wbr>b-<wbr>&lt;c&gt;"
    assert breaks("plain") == "plain"
