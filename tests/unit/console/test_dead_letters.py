"""Dead letters in the console: listed with where they came from, and sent back, all or chosen, once it is confirmed."""

import re
from collections.abc import Iterator
from typing import Any

import confluent_kafka as kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.cli.committed_offsets import BrokerConnections
from kafkapy.cli.redrive_lock import only_redrive
from kafkapy.console import dead_letters
from kafkapy.console.app import new_app
from kafkapy.console.brokers import BadRequest
from kafkapy.console.security import VIEWER
from kafkapy.console.settings import Oidc, Settings
from kafkapy.share.letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)
from tests.support.console_pages import OWN, post, sessions_of

JOBS, DEAD = "jobs", "dlq.jobs"
WHY = "<b>Offset rejected by client.</b>"


@pytest.fixture
def server() -> Iterator[str]:
    """Four jobs, of which 0, 1 and 3 were given up, by two groups; and a record that is no letter."""
    with Broker() as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(JOBS, 1, 1), NewTopic(DEAD, 1, 1)]).values():
            future.result(30)
        producer = kafka.Producer({"bootstrap.servers": servers})
        for number in range(4):
            producer.produce(JOBS, f"job {number}", f"key {number}", headers=[("own", b"1")])
        assert producer.flush(30) == 0
        for offset, group in ((0, "workers"), (1, "workers"), (3, "others")):
            headers = {
                TOPIC_HEADER: JOBS,
                PARTITION_HEADER: "0",
                OFFSET_HEADER: str(offset),
                GROUP_HEADER: group,
                DELIVERY_COUNT_HEADER: "5",
                MESSAGE_HEADER: WHY,
            }
            producer.produce(DEAD, headers=headers)
        producer.produce(DEAD, "no letter")
        assert producer.flush(30) == 0
        yield servers


@pytest.fixture
def page(server: str) -> Iterator[TestClient]:
    with TestClient(new_app(Settings(servers=server, allow_changes=True)), base_url=OWN) as client:
        client.get("/charts")
        yield client


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def redrive(client: TestClient, **fields: object) -> Any:
    return post(client, "redrive", name=DEAD, **fields)


def jobs(server: str) -> list[str]:
    """Return the jobs from the fifth on: those that were sent back."""
    consumer = kafka.Consumer({"bootstrap.servers": server, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(JOBS, 0, 4)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        assert message.headers() == [("own", b"1")]
        found.append(f"{message.key().decode()}: {message.value().decode()}")
    consumer.close()
    return found


def test_a_viewer_reads_why_nothing_is_sent(server: str) -> None:
    settings = Settings(servers=server, allow_changes=True, oidc=Oidc("https://provider.example", "console"))
    with TestClient(new_app(settings), base_url=OWN) as client:
        sessions = sessions_of(client)
        client.cookies.set(sessions.cookie, sessions.new(VIEWER, "ann").text)
        shown = text_of(client.get("/topic/letters", params={"name": DEAD}).text)
    assert "that needs the role of an editor" in shown
    assert "--allow-changes" not in shown


def test_letters_are_listed_with_where_they_came_from(page: TestClient) -> None:
    html = page.get("/topic/letters", params={"name": DEAD}).text
    shown = text_of(html)
    assert WHY not in html
    assert "1 records of this topic are no dead letters" in shown
    assert re.search(r"others jobs 0 1 workers jobs 0 2 ", shown)
    assert re.search(r"0-2 \S+ \S+ others jobs-0, offset 3 5 &lt;b&gt;Offset rejected by client", shown)
    only = text_of(page.get("/topic/letters", params={"name": DEAD, "group": "others"}).text)
    assert "jobs-0, offset 3" in only
    assert "offset 1" not in only
    letter = text_of(page.get("/topic/record", params={"name": DEAD, "partition": 0, "offset": 2}).text)
    assert "A dead letter… Send back…" in letter
    assert "Send back…" not in page.get("/topic/record", params={"name": DEAD, "partition": 0, "offset": 3}).text


def test_chosen_letters_go_back_once_it_is_confirmed(page: TestClient, server: str) -> None:
    asked = redrive(page, **{"letter-0-2": "1"})
    assert "Send 1 dead letters of dlq.jobs back." in asked.text
    assert "jobs-0: 1 given up by others." in asked.text
    assert jobs(server) == [], "not before it is confirmed"
    done = redrive(page, **{"letter-0-2": "1", "confirmed": 1})
    assert done.url.params["done"] == "Sent 1 record back."
    assert jobs(server) == ["key 3: job 3"]


def test_all_letters_of_a_group_go_back(page: TestClient, server: str) -> None:
    assert redrive(page, all=1, group="workers", confirmed=1).url.params["done"] == "Sent 2 records back."
    assert jobs(server) == ["key 0: job 0", "key 1: job 1"]


def test_a_form_that_failed_in_part_sends_what_is_left_when_it_is_sent_again(page: TestClient, server: str) -> None:
    headers = {TOPIC_HEADER: JOBS, PARTITION_HEADER: "1", OFFSET_HEADER: "0", GROUP_HEADER: "workers"}
    producer = kafka.Producer({"bootstrap.servers": server})
    producer.produce(DEAD, "of a partition that is to come", headers=headers)
    assert producer.flush(30) == 0
    failed = redrive(page, all=1, group="workers", confirmed=1)
    assert "Sent 2 records back. 1 record was not delivered" in text_of(failed.text)
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_partitions([kafka.admin.NewPartitions(JOBS, 2)])[JOBS].result(30)
    asked = text_of(redrive(page, all=1, group="workers").text)
    assert "Send 1 dead letters of dlq.jobs back." in asked
    assert "2 letters went back when this was tried before: they stay out." in asked
    assert redrive(page, all=1, group="workers", confirmed=1).url.params["done"] == "Sent 1 record back."
    assert jobs(server) == ["key 0: job 0", "key 1: job 1"]
    assert redrive(page, all=1, group="workers", confirmed=1).url.params["done"] == "Sent 3 records back.", "as always"


def test_a_form_that_is_sent_twice_at_once_sends_letters_once(page: TestClient, server: str, monkeypatch) -> None:
    send_back, again = dead_letters.send_back, []

    def sent_while_the_first_runs(*arguments: Any) -> str:
        monkeypatch.setattr(dead_letters, "send_back", send_back)
        again.append(redrive(page, all=1, group="workers", confirmed=1))
        return send_back(*arguments)

    monkeypatch.setattr(dead_letters, "send_back", sent_while_the_first_runs)
    assert redrive(page, all=1, group="workers", confirmed=1).url.params["done"] == "Sent 2 records back."
    assert (again[0].status_code, "are being sent back" in text_of(again[0].text)) == (400, True)
    assert jobs(server) == ["key 0: job 0", "key 1: job 1"]


def test_a_form_waits_for_the_end_of_a_redrive_elsewhere(page: TestClient, server: str) -> None:
    with BrokerConnections({"bootstrap.servers": server}) as brokers, only_redrive(brokers, DEAD, print):
        refused = redrive(page, all=1, group="workers", confirmed=1)
    assert (refused.status_code, f"another redrive of {DEAD} runs" in text_of(refused.text)) == (400, True)
    assert jobs(server) == []
    assert redrive(page, all=1, group="workers", confirmed=1).url.params["done"] == "Sent 2 records back."


def test_a_redrive_that_was_planned_while_another_ran_is_refused() -> None:
    redrives = dead_letters.UnfinishedRedrives()
    before = redrives.turn_of(DEAD)
    with redrives.taking(DEAD, before):
        during = redrives.turn_of(DEAD)
    for turn in (before, during):
        with pytest.raises(BadRequest), redrives.taking(DEAD, turn):
            pass
    with redrives.taking(DEAD, redrives.turn_of(DEAD)):
        pass


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "No letter is chosen."),
        ({"letter-x-1": "1"}, "a letter is letter-PARTITION-OFFSET"),
        ({"letter-0-99": "1"}, "No dead letter is to be sent back."),
        ({"all": 1, "group": "nobody"}, "No dead letter is to be sent back."),
        ({"all": 1, "group": "g" * 40_000}, "so long a name"),
    ],
)
def test_what_cannot_be_sent_back_is_refused(page: TestClient, fields: dict[str, object], reason: str) -> None:
    response = redrive(page, **fields)
    assert response.status_code == 400
    assert reason in response.text


def test_a_topic_with_too_many_records_is_not_read(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MAX_RECORDS", 3)
    response = page.get("/topic/letters", params={"name": DEAD})
    assert response.status_code == 400
    assert "kafkapy groups redrive dlq.jobs" in response.text


def test_a_group_names_its_dead_letter_topic(page: TestClient, server: str) -> None:
    entry = ConfigEntry(dead_letters.TOPIC_KEY, DEAD, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    settings = {"bootstrap.servers": server, "group.id": "workers", "log_level": 0}
    with kafka.ShareConsumer(settings) as consumer:
        consumer.subscribe([JOBS])
        for _ in range(120):
            consumer.poll(0.5)
            shown = page.get("/group", params={"name": "workers"})
            if shown.status_code == 200:
                break
    assert re.search(r'href="/topic/letters\?name=dlq\.jobs&amp;group=workers"', shown.text)
