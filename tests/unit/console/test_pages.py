"""The pages, asked of a broker of our own; what comes from the cluster is never shown unescaped."""

import json
import logging
import re

import confluent_kafka as kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.support.console_pages import OWN, post

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def server():
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        # records of 1970, which retention would delete half a minute after the start
        kept = {"retention.ms": "-1"}
        topics = [NewTopic("records", 2, 1, config=kept), NewTopic("empty", 1, 1, config={"retention.ms": "5000"})]
        for future in admin.create_topics(topics).values():
            future.result(30)
        producer = kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
        for number in range(300):
            headers = [("h", str(number % 3).encode()), (HOSTILE, None)]
            value = HOSTILE.encode() if number == 7 else json.dumps({"n": number}).encode()
            producer.produce("records", value, f"k{number % 10}", number % 2, timestamp=1000 + number, headers=headers)
        assert producer.flush(30) == 0
        consumer = kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": HOSTILE})
        consumer.commit(offsets=[kafka.TopicPartition("records", 0, 100)], asynchronous=False)
        consumer.close()
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def page(server):
    with TestClient(new_app(Settings(servers=server)), base_url=OWN) as client:
        yield client


@pytest.fixture(scope="module")
def changing(server):
    with TestClient(new_app(Settings(servers=server, allow_changes=True)), base_url=OWN) as client:
        client.get("/charts")
        yield client


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.replace("<wbr>", "")))


def events(response) -> list[tuple[str, str]]:
    found = []
    for block in response.text.split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("event: "):
            data = [line[6:] for line in lines if line.startswith("data: ")]
            found.append((lines[0][7:], "\n".join(data)))
    return found


def offsets_found(page, **fields: object) -> list[tuple[int, int]]:
    """Return (partition, offset) of the rows that a search shows, in their order."""
    response = page.get("/stream", params={"name": "records", **fields})
    rows = "".join(data for name, data in events(response) if name == "rows")
    return [(int(p), int(o)) for p, o in re.findall(r"partition=(\d+)&amp;offset=(\d+)", rows)]


PAGES = [
    ("/", "Under-replicated"),
    ("/topics", "2 of"),
    ("/topics?q=rec", "1 of"),
    ("/topic?name=records", "in sync"),
    ("/topic/configs?name=empty", "5000"),
    ("/topic/groups?name=records", "50"),
    ("/topic/producers?name=records", "Producer id"),
    ("/topic/access?name=records", "SECURITY_DISABLED"),
    ("/topic/messages?name=records", "Searching"),
    ("/topic/tail?name=records", "Pause"),
    ("/topic/record?name=records&partition=1&offset=3", "Offset 4"),
    ("/groups", "Empty"),
    ("/brokers", "metadata.version"),
    ("/broker?id=1", "auto.create.topics.enable"),
    ("/transactions", "No transactional ids"),
    ("/access", "SECURITY_DISABLED"),
    ("/charts", "--metrics"),
]


@pytest.mark.parametrize(("path", "said"), PAGES)
def test_a_page_is_shown(page, path, said) -> None:
    response = page.get(path)
    assert response.status_code == 200, text_of(response.text)
    assert said in text_of(response.text)
    assert "<script>alert" not in response.text


@pytest.mark.parametrize(
    "path",
    [
        "/topic?name=missing",
        "/topic/configs?name=missing",
        "/topic/record?name=records&partition=0&offset=99999",
        "/topic/record?name=records&partition=99&offset=0",
        "/topic/producers?name=records&partition=99",
        "/group?name=missing",
        "/broker?id=99",
        "/transaction?id=missing",
        "/nothing",
    ],
)
def test_what_is_not_there_is_404(page, path) -> None:
    assert page.get(path).status_code == 404


def test_only_what_a_cluster_may_have_later_is_tried_again(page) -> None:
    unknown, missing = page.get("/nothing").text, page.get("/topic?name=missing").text
    assert ('href="/">To the overview' in unknown, "Try again" in unknown) == (True, False)
    assert ("To the overview" in missing, "Try again" in missing) == (False, True)


@pytest.mark.parametrize(
    "path",
    [
        "/topic",
        "/topics?page=abc",
        "/topics?page=-1",
        "/topic/record?name=records&partition=99999999999&offset=1",
        "/group?name=",
        pytest.param("/group?name=" + "g" * 32_768, id="a group's name that fits into no request"),
        "/transaction?id=",
        "/broker?id=abc",
    ],
)
def test_a_wrong_field_is_400_not_an_error_of_the_cluster(page, path) -> None:
    assert page.get(path).status_code == 400


def test_a_hostile_group_is_shown_as_text(page) -> None:
    response = page.get("/group", params={"name": HOSTILE})
    assert response.status_code == 200
    assert "<script>alert" not in response.text
    assert "&lt;script&gt;alert(1)" in response.text
    assert "50" in text_of(response.text)
    assert page.get("/group/lag", params={"name": HOSTILE}).json()["lag"][-1][1] == 50


def test_a_reset_is_shown_and_not_done(page) -> None:
    asked = {"name": HOSTILE, "topic": "records:0", "to": "-30"}
    assert re.search(r"100.*70.*-30", text_of(page.get("/group/reset", params=asked).text))
    assert "50" in text_of(page.get("/group", params={"name": HOSTILE}).text)
    assert page.get("/group/reset", params={**asked, "to": "nonsense"}).status_code == 400


def test_the_last_records_come_newest_first(page) -> None:
    assert offsets_found(page, count=2) == [(1, 149), (0, 149), (1, 148), (0, 148)]
    assert offsets_found(page, count=5, limit=1) == [(1, 149)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"from": "offset", "offset": 148, "partitions": "0"}, [(0, 148), (0, 149)]),
        ({"from": "time", "time": "1970-01-01T00:00:01.298"}, [(0, 149), (1, 149)]),
        ({"from": "beginning", "key": "k3", "limit": 2, "partitions": "1"}, [(1, 1), (1, 6)]),
        ({"from": "beginning", "text": "alert"}, [(1, 3)]),
        ({"from": "beginning", "regex": r'"n": 29[89]'}, [(0, 149), (1, 149)]),
        ({"from": "beginning", "header": "h=1", "partitions": "0", "limit": 2}, [(0, 2), (0, 5)]),
        ({"from": "beginning", "header": "none"}, []),
        ({"from": "beginning", "json_path": "$.n > 297"}, [(0, 149), (1, 149)]),
        ({"from": "beginning", "json_path": "$.m"}, []),
        ({"from": "beginning", "until": "1970-01-01T00:00:01.001"}, [(0, 0), (1, 0)]),
        ({"from": "beginning", "latest": "1", "partitions": "1"}, [(1, each) for each in range(145, 150)]),
        ({"from": "beginning", "name": "empty"}, []),
    ],
)
def test_records_are_found(page, fields, expected) -> None:
    assert sorted(offsets_found(page, **fields)) == expected


def test_records_are_escaped_and_progress_is_shown(page) -> None:
    response = page.get("/stream", params={"name": "records", "from": "beginning", "text": "alert"})
    assert "<script>alert" not in response.text
    told = [json.loads(data) for name, data in events(response) if name == "progress"]
    assert told[-1]["scanned"] == told[-1]["total"] == 300
    assert events(response)[-1] == ("ended", "1 found, 300 records looked through.")


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "("},
        {"json_path": "n > 1"},
        {"json_path": "$.n =~ ("},
        {"until": "soon"},
        {"value_format": "avro"},
        {"from": "x"},
        {"name": "missing"},
        {"partitions": "99"},
    ],
)
def test_an_impossible_search_reports_why(page, fields) -> None:
    (event,) = events(page.get("/stream", params={"name": "records", **fields}))
    assert event[0] == "ended"
    assert event[1]


def test_long_values_are_cut_in_lists_and_shown_alone(page, server) -> None:
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic("long", 1, 1)])["long"].result(30)
    producer = kafka.Producer({"bootstrap.servers": server})
    producer.produce("long", "x" * 9000 + "end", partition=0)
    assert producer.flush(30) == 0
    listed = re.sub(r'data-line="[^"]*"', "", page.get("/stream", params={"name": "long"}).text)
    assert "only the beginning is shown" in listed
    assert "xend" not in listed
    assert "xend" in page.get("/topic/record?name=long&partition=0&offset=0").text
    admin.delete_topics(["long"])["long"].result(30)


def test_internal_topics_are_decoded(page) -> None:
    listed = page.get("/stream", params={"name": "__consumer_offsets", "from": "beginning"}).text
    assert "&#34;group&#34;: &#34;&lt;script&gt;alert(1)" in listed
    assert "<script>alert" not in listed


def test_the_console_has_no_group_of_its_own(page, server) -> None:
    offsets_found(page, count=2)
    admin = AdminClient({"bootstrap.servers": server})
    listed = admin.list_consumer_groups().result(30)
    assert [each.group_id for each in listed.valid] == [HOSTILE]


@pytest.fixture
def changes_log(caplog):
    with caplog.at_level(logging.INFO, logger="kafkapy.console.changes"):
        yield caplog


def test_a_topic_lives_through_every_change(changing, changes_log) -> None:
    asked = post(changing, "create-topic", name="made", partitions=1, configs="retention.ms=1000")
    assert "retention.ms = 1000" in asked.text
    assert changing.get("/topic?name=made").status_code == 404, "not before it is confirmed"
    done = post(changing, "create-topic", name="made", partitions=1, configs="retention.ms=1000", confirmed=1)
    assert done.url.params["done"] == "Created made."
    post(changing, "add-partitions", name="made", partitions=3, confirmed=1)
    post(changing, "set-config", name="made", key="retention.ms", value="77000", confirmed=1)
    assert "77000" in changing.get("/topic/configs?name=made").text
    post(changing, "reset-config", name="made", key="retention.ms", confirmed=1)
    assert "77000" not in changing.get("/topic/configs?name=made").text
    sent = {"name": "made", "partition": 2, "key": "k", "value": "a\r\nb", "headers": "x=1"}
    assert post(changing, "produce", **sent, confirmed=1).status_code == 200
    assert "a\nb" in changing.get("/topic/record?name=made&partition=2&offset=0").text
    assert "Type made" in post(changing, "delete-records", name="made", partition=2, before=1, confirmed=1).text
    post(changing, "delete-records", name="made", partition=2, before=1, confirmed=1, typed="made")
    assert changing.get("/topic/record?name=made&partition=2&offset=0").status_code == 404
    for partition in range(3):
        post(changing, "produce", name="made", partition=partition, value="v", confirmed=1)
    some = text_of(post(changing, "delete-records", name="made", partition="", before="9").text)
    assert "Of partition 0, what lies before offset 1 is gone" in some, "it ends there"
    assert (
        post(changing, "delete-records", name="made", partition=0, before=9, confirmed=1, typed="made").status_code
        == 502
    )
    asked = text_of(post(changing, "delete-records", name="made", partition="", before="").text)
    assert "Delete all records of made." in asked
    assert "Of partition 2, all records are gone for good: those before offset 2, and what comes" in asked
    post(changing, "delete-records", name="made", partition="", before="", confirmed=1, typed="made")
    for partition, offset in ((0, 0), (1, 0), (2, 1)):
        gone = changing.get(f"/topic/record?name=made&partition={partition}&offset={offset}")
        assert gone.status_code == 404, partition
    assert post(changing, "delete-records", name="made", partition=3, before="").status_code == 404
    post(changing, "add-partitions", name="made", partitions=52, confirmed=1)
    assert "And 2 more like these." in text_of(post(changing, "delete-records", name="made", partition="").text)
    assert "Type made" in post(changing, "delete-topic", name="made", confirmed=1, typed="mad").text
    post(changing, "delete-topic", name="made", confirmed=1, typed="made")
    assert changing.get("/topic?name=made").status_code == 404
    said = [record.getMessage() for record in changes_log.records]
    assert len(said) == 13
    assert "Delete the topic made" in said[-1]


def test_a_group_is_reset_and_deleted(changing, server) -> None:
    consumer = kafka.Consumer({"bootstrap.servers": server, "group.id": "moved"})
    consumer.commit(offsets=[kafka.TopicPartition("records", 1, 10)], asynchronous=False)
    consumer.close()
    asked = {"name": "moved", "topic": "records:1", "to": "latest"}
    assert "records-1: 10 → 150" in post(changing, "reset-offsets", **asked).text
    assert post(changing, "reset-offsets", **asked, confirmed=1).status_code == 200
    assert "150" in text_of(changing.get("/group?name=moved").text)
    post(changing, "delete-group", name="moved", confirmed=1, typed="moved")
    assert changing.get("/group?name=moved").status_code == 404


def test_a_refused_change_says_why_and_is_logged(changing, changes_log) -> None:
    refused = post(changing, "create-topic", name="records", confirmed=1)
    assert (refused.status_code, "already exists" in refused.text) == (502, True)
    assert "Refused" in changes_log.records[-1].getMessage()
    assert post(changing, "nonsense").status_code == 404
    assert post(changing, "create-topic", name="x", partitions="many").status_code == 400


def test_without_a_broker_pages_say_so(server) -> None:
    with TestClient(new_app(Settings(servers="127.0.0.1:1")), base_url=OWN) as client:
        for path in (
            "/",
            "/topics",
            "/topic?name=x",
            "/groups",
            "/group?name=x",
            "/brokers",
            "/transactions",
            "/access",
        ):
            response = client.get(path)
            assert response.status_code == 502
            assert "Connection refused" in response.text
        assert events(client.get("/stream?name=x"))[-1][1].startswith("No broker answers at 127.0.0.1:1")
