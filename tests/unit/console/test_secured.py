"""The console's process against a listener with TLS and logins: every page, and what a user without rights is shown."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkapy import Broker

PAGES = [
    "/",
    "/topics",
    "/topic?name=orders",
    "/topic/messages?name=orders",
    "/topic/configs?name=orders",
    "/topic/access?name=orders",
    "/groups",
    "/brokers",
    "/access",
    "/transactions",
]
PASSWORDS = {"alice": "of alice", "bob": "of bob"}
ACLS = [
    "allow alice all topic:*",
    "allow alice all cluster",
    "allow alice read topic:payments",
    "allow alice write topic:orders",
    "allow alice all group:*",
    "allow alice all transactional-id:*",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users=PASSWORDS, acls=ACLS) as running:
        producer = Producer(running.client_config("alice"))
        producer.produce("orders", "a secret order", "key")
        assert producer.flush(60) == 0
        yield running


@contextmanager
def console(broker: Broker, user: str, directory: Path) -> Iterator[str]:
    """Start it with the settings of a user; yield its URL."""
    settings = broker.client_config(user)
    authority = directory / "ca.pem"
    authority.write_text(settings["ssl.ca.pem"])
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority}\n"
        f'sasl.jaas.config={login} required username="{user}" password="{PASSWORDS[user]}";\n'
    )
    command = [sys.executable, "-m", "kafkapy", "console", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--command-config", str(file)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_page_is_there_for_who_may_see_all(broker: Broker, tmp_path: Path) -> None:
    with console(broker, "alice", tmp_path) as url:
        for path in PAGES:
            status, text = page(url + path)
            assert status == 200, (path, text)
            assert PASSWORDS["alice"] not in text
        assert "orders" in page(f"{url}/topics")[1]
        assert "a secret order" in page(f"{url}/stream?name=orders&from=beginning")[1]
        rules = page(f"{url}/access")[1].replace("<wbr>", "")
        assert (rules.count("User:alice"), "No ACLs." in rules) == (2 * len(ACLS), False), (
            "a principal, and the rule in words"
        )
        of_topic = page(f"{url}/topic/access?name=orders")[1].replace("<wbr>", "")
        assert (of_topic.count("User:alice"), "payments" in of_topic) == (4, False), "of orders, and of all topics"


def test_who_may_see_nothing_is_shown_nothing(broker: Broker, tmp_path: Path) -> None:
    with console(broker, "bob", tmp_path) as url:
        assert "orders" not in page(f"{url}/topics")[1]
        status, text = page(f"{url}/topic?name=orders")
        assert status in (404, 502)
        assert "a secret order" not in text
