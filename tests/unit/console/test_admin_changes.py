"""Changes of users, ACLs, quotas, replicas, leaders, members and transactions: confirmed, made, logged."""

import logging
import re

import confluent_kafka as kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.testclient import TestClient

from kafkapy import Broker, Cluster
from kafkapy.cli.transaction_admin import TransactionAdmin, TransactionError
from kafkapy.console import transactions
from kafkapy.console.access import OPERATIONS, Acl
from kafkapy.console.app import new_app
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError
from kafkapy.console.main import _log_changes
from kafkapy.console.rules import WORDS, in_words
from kafkapy.console.settings import Settings
from kafkapy.types import TopicPartition
from tests.support.client_requests import READ_COMMITTED, list_offset
from tests.support.console_pages import OWN, post
from tests.support.eventually import eventually
from tests.support.transactions import hanging_transaction
from tests.support.wire import WireClient

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PASSWORD = "a secret that no page shows"
RULE = {
    "principal": "User:shop",
    "permission": "allow",
    "operation": "read",
    "resource_type": "topic",
    "resource": "orders",
    "pattern": "literal",
}


@pytest.fixture(scope="module")
def broker():
    with Broker(properties=AUTHORIZER) as running:
        running.create_topics("orders", partitions=2)
        yield running


@pytest.fixture
def client(broker):
    with WireClient(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture(scope="module")
def page(broker):
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers, allow_changes=True)), base_url=OWN) as client:
        client.get("/charts")
        yield client


def shown(client, path: str) -> str:
    return client.get(path).text.replace("<wbr>", "")


def test_an_acl_is_said_in_words_added_and_deleted(page, caplog) -> None:
    caplog.set_level(logging.INFO, logger="kafkapy.console.changes")
    asked = post(page, "create-acl", **RULE).text
    assert "User:shop may read records of topic orders." in asked
    assert "User:shop may" not in shown(page, "/access"), "not before it is confirmed"
    assert post(page, "create-acl", **RULE, confirmed=1).status_code == 200
    assert "User:shop may read records of topic orders" in shown(page, "/access")
    assert "User:shop may read records of topic orders" in caplog.text
    post(page, "delete-acl", **RULE, host="*", confirmed=1)
    assert "User:shop may" not in shown(page, "/access")
    gone = post(page, "delete-acl", **RULE, host="*", confirmed=1)
    assert (gone.status_code, "no such ACL" in gone.text) == (502, True)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("create-acl", {**RULE, "principal": "shop"}, "as User:shop"),
        ("create-acl", {**RULE, "operation": "eat"}, "operation: one of"),
        ("create-acl", {**RULE, "resource": ""}, "resource: 1 to"),
        ("create-acl", {**RULE, "operation": "cluster action"}, "of a topic there are all, read, write"),
        ("set-user", {"user": "", "mechanism": "SCRAM-SHA-256"}, "user: 1 to"),
        ("set-user", {"user": "u", "mechanism": "MD5"}, "mechanism: one of"),
        ("set-quota", {"key": "producer_byte_rate", "value": "1"}, "of a user, a client id or an address"),
        ("set-quota", {"key": "producer_byte_rate", "value": "nan", "user": "u"}, "more than 0"),
        ("set-quota", {"key": "other", "value": "1", "user": "u"}, "key: one of"),
        ("set-replicas", {"name": "orders", "replicas": "1,1"}, "twice"),
        ("set-replicas", {"name": "orders", "replicas": "1"}, "has them in this order"),
        ("set-replicas", {"name": "orders", "replicas": "one"}, "ids of brokers"),
        ("set-replicas", {"name": "orders", "replicas": "9"}, "the brokers are 1"),
        ("set-replicas", {"name": "orders", "replicas": "1", "partition": "9"}, "no partition 9"),
        ("elect-leaders", {"name": "orders"}, "led by its preferred leader"),
        ("remove-member", {"name": "g", "member": ""}, "member: its id"),
    ],
)
def test_what_makes_no_sense_is_refused(page, kind, fields, said) -> None:
    response = post(page, kind, **fields)
    assert (response.status_code, said in response.text) == (400, True), response.text


def test_a_password_is_asked_for_by_the_confirmation_and_shown_nowhere(page, caplog) -> None:
    caplog.set_level(logging.INFO, logger="kafkapy.console.changes")
    user = {"user": "shop", "mechanism": "SCRAM-SHA-256"}
    assert 'type="password"' in post(page, "set-user", **user).text
    assert "Give a password." in post(page, "set-user", **user, confirmed=1).text
    again = post(page, "set-user", **user, password=PASSWORD)
    assert PASSWORD not in again.text, "what is sent back leaves it out"
    assert post(page, "set-user", **user, password=PASSWORD, confirmed=1).status_code == 200
    assert "SCRAM-SHA-256" in shown(page, "/access").partition("<h2>SCRAM users</h2>")[2].partition("</table>")[0]
    assert "Set the password of the user shop" in caplog.text
    assert PASSWORD not in caplog.text
    assert "Type shop" in post(page, "delete-user", **user, confirmed=1).text
    post(page, "delete-user", **user, confirmed=1, typed="shop")
    assert "No SCRAM users." in shown(page, "/access")


def test_a_quota_is_set_and_removed(page) -> None:
    quota = {"user": "shop", "client_id": "<default>", "key": "consumer_byte_rate"}
    assert "user shop, client-id (default)" in post(page, "set-quota", **quota, value="1048576").text
    assert "consumer_byte_rate = 1048576<" in post(page, "set-quota", **quota, value="1048576").text
    post(page, "set-quota", **quota, value="1048576", confirmed=1)
    quotas = shown(page, "/access").partition("<h2>SCRAM")[0].partition("<h2>Quotas</h2>")[2]
    assert "consumer_byte_rate" in quotas
    assert ">1048576<" in quotas
    post(page, "set-quota", **quota, value="", confirmed=1)
    assert "No quotas." in shown(page, "/access")


def test_a_member_is_removed_from_its_group(broker, page) -> None:
    consumer = kafka.Consumer({**broker.client_config(), "group.id": "readers", "client.id": "worker"})
    consumer.subscribe(["orders"])
    eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    member = consumer.memberid()
    assert member in shown(page, "/group?name=readers")
    assert post(page, "remove-member", name="readers", member=member, confirmed=1).status_code == 200
    assert "No members." in shown(page, "/group?name=readers")
    consumer.close()
    unknown = post(page, "remove-member", name="readers", member="nobody", confirmed=1)
    assert (unknown.status_code, "UNKNOWN_MEMBER_ID" in unknown.text) == (502, True)


def test_a_transaction_is_aborted(broker, page) -> None:
    producer = kafka.Producer({**broker.client_config(), "transactional.id": "t1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "1", partition=0)
    producer.flush(30)
    assert "Abort…" in shown(page, "/transaction?id=t1")
    assert "Type t1" in post(page, "abort-transaction", id="t1", confirmed=1).text
    post(page, "abort-transaction", id="t1", confirmed=1, typed="t1")
    eventually(lambda: "Ongoing" not in shown(page, "/transaction?id=t1"))
    assert "Abort…" not in shown(page, "/transaction?id=t1")


def test_a_hanging_transaction_is_aborted_and_no_other(broker, page, client) -> None:
    broker.create_topics("hangs")
    producer_id = hanging_transaction(client, "hangs")
    place = {"name": "hangs", "partition": 0, "producer_id": producer_id}
    assert "Abort if it hangs…" in shown(page, "/topic/producers?name=hangs")
    asked = post(page, "abort-hanging", **place).text
    assert f"Abort the hanging transaction of producer {producer_id} in hangs-0." in asked
    assert list_offset(client, "hangs", -1, isolation_level=READ_COMMITTED).offset == 0, "not before it is confirmed"
    assert post(page, "abort-hanging", **place, confirmed=1, typed="hangs").url.params["done"] == "Aborted."
    assert list_offset(client, "hangs", -1, isolation_level=READ_COMMITTED).offset == 2
    assert "has no transaction open in hangs-0" in post(page, "abort-hanging", **place).text


def test_a_transaction_that_ends_while_its_coordinator_is_asked_is_not_taken_for_hanging(broker, monkeypatch) -> None:
    broker.create_topics("ends")
    producer = kafka.Producer({**broker.client_config(), "transactional.id": "t3"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ends", "1", partition=0)
    producer.flush(30)
    brokers = Brokers(Settings(servers=broker.bootstrap_servers))
    (opened,) = transactions.producers(brokers, "ends", 0)
    ask = TransactionAdmin.hanging_among

    def ended_before(admin, candidates):
        producer.abort_transaction(30)
        return ask(admin, candidates)

    monkeypatch.setattr(TransactionAdmin, "hanging_among", ended_before)
    with pytest.raises(BadRequest, match=r"has ended the transaction|coordinator knows"):
        transactions.hanging(brokers, TopicPartition("ends", 0), opened.producer_id)


def test_a_coordinator_that_does_not_answer_makes_no_transaction_a_hanging_one(broker, monkeypatch) -> None:
    broker.create_topics("silent")
    producer = kafka.Producer({**broker.client_config(), "transactional.id": "t4"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("silent", "1", partition=0)
    producer.flush(30)
    brokers = Brokers(Settings(servers=broker.bootstrap_servers))
    (opened,) = [each for each in transactions.producers(brokers, "silent", 0) if each.current_txn_start_offset >= 0]

    def refuse(*_):
        raise TransactionError("no broker answers")

    monkeypatch.setattr(TransactionAdmin, "describe", refuse)
    with pytest.raises(ClusterError, match="no broker answers"):
        transactions.hanging(brokers, TopicPartition("silent", 0), opened.producer_id)
    producer.abort_transaction(30)


def test_a_transaction_that_its_coordinator_ends_is_not_aborted_in_a_partition(broker, page, client) -> None:
    producer = kafka.Producer({**broker.client_config(), "transactional.id": "t2"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "1", partition=1)
    producer.flush(30)
    (opened,) = transactions.producers(Brokers(Settings(servers=broker.bootstrap_servers)), "orders", 1)
    place = {"name": "orders", "partition": 1, "producer_id": opened.producer_id}
    refused = post(page, "abort-hanging", **place, confirmed=1, typed="orders")
    assert (refused.status_code, "abort it by its transactional id" in refused.text) == (400, True)
    producer.abort_transaction(30)


def test_replicas_move_and_preferred_leaders_lead() -> None:
    with Cluster(3, in_process=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("moved", 2, 1)])["moved"].result(60)
        settings = Settings(servers=cluster.bootstrap_servers, allow_changes=True)
        with TestClient(new_app(settings), base_url=OWN) as client:
            client.get("/charts")
            asked = post(client, "set-replicas", name="moved", replicas="2,3").text
            assert "→ 2, 3" in asked
            assert "→ 3, 2" in asked, "leaders are spread"
            assert post(client, "set-replicas", name="moved", replicas="2,3", confirmed=1).status_code == 200
            eventually(lambda: shown(client, "/topic?name=moved").count("<td>2, 3</td>") >= 1)
            eventually(lambda: "under-replicated" not in shown(client, "/topic?name=moved"))
            leader = admin.list_topics("moved").topics["moved"].partitions[0].leader
            other = 5 - leader
            post(client, "set-replicas", name="moved", replicas=f"{other},{leader}", partition=0, confirmed=1)
            eventually(lambda: f"<td>{other}, {leader}</td>" in shown(client, "/topic?name=moved"))
            assert f"moved-0: {leader} → {other}" in post(client, "elect-leaders", name="moved").text
            assert post(client, "elect-leaders", name="moved", confirmed=1).status_code == 200
            eventually(lambda: f"moved-0: {leader}" not in post(client, "elect-leaders", name="moved").text)


def test_a_preferred_leader_that_is_not_in_sync_is_not_elected_and_others_are() -> None:
    with Cluster(3, in_process=True) as cluster:
        cluster.create_topics("led", partitions=6, replicas=3)
        settings = Settings(servers=cluster.bootstrap_servers, allow_changes=True)
        with TestClient(new_app(settings), base_url=OWN) as client:
            client.get("/charts")
            assert "is led by its preferred leader" in post(client, "elect-leaders", name="led").text
            cluster.stop(2)
            eventually(lambda: "No preferred leader of led is" in post(client, "elect-leaders", name="led").text)
            cluster.start(2)
            eventually(lambda: re.search(r"led-\d: \d → 2", post(client, "elect-leaders", name="led").text))
            cluster.stop(1)
            eventually(lambda: "stays, 1 is not in sync" in post(client, "elect-leaders", name="led").text)
            done = post(client, "elect-leaders", name="led", confirmed=1)
            assert (done.status_code, done.url.params.get("done")) == (200, "Elected.")


def test_none_of_it_is_done_by_a_console_that_only_reads(broker) -> None:
    with TestClient(new_app(Settings(servers=broker.bootstrap_servers)), base_url=OWN) as client:
        client.get("/charts")
        for kind in (
            "create-acl",
            "set-user",
            "set-quota",
            "set-replicas",
            "remove-member",
            "abort-transaction",
            "abort-hanging",
        ):
            assert post(client, kind, **RULE).status_code == 403
        for path in ("/access", "/topic?name=orders"):
            assert "/change/" not in shown(client, path)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Acl("topic", "a", "literal", "User:u", "*", "write", "allow"), "User:u may write records to topic a"),
        (
            Acl("topic", "a.", "prefixed", "User:*", "10.0.0.1", "read", "deny"),
            "everybody may not read records of every topic whose name begins with a. from 10.0.0.1",
        ),
        (Acl("group", "*", "literal", "User:u", "*", "all", "allow"), "User:u may do everything with every group"),
        (
            Acl("cluster", "kafka-cluster", "literal", "User:u", "*", "create", "allow"),
            "User:u may create topics anywhere in the cluster",
        ),
    ],
)
def test_rules_in_words(rule, words) -> None:
    assert in_words(rule) == words


def test_words_are_of_operations_that_there_are() -> None:
    assert {operation for _, operation in WORDS} <= set(OPERATIONS.values())


def test_changes_are_appended_to_the_audit_log(tmp_path) -> None:
    logger = logging.getLogger("kafkapy.console")
    before = list(logger.handlers)
    path = tmp_path / "audit.log"
    path.write_text("kept\n")
    _log_changes(str(path))
    logging.getLogger("kafkapy.console.changes").info("Changed by %s: %s", "here", "this")
    for each in set(logger.handlers) - set(before):
        logger.removeHandler(each)
        each.close()
    kept, line = path.read_text().splitlines()
    assert (kept, line.endswith("INFO kafkapy.console.changes: Changed by here: this")) == ("kept", True)
    with pytest.raises(OSError, match="No such file"):
        _log_changes(str(tmp_path / "none" / "audit.log"))
