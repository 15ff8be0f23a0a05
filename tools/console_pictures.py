"""Pictures of the console for docs/howto/console.md: a broker with topics, groups and transactions, and Chromium.

`python -m tools.console_pictures [FOLDER]` writes them. `world` and `console_of` serve tests of every page.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harness.servers import free_port
from kafkapy import Broker
from tools.kafka import CHROMIUM_MISSING, chromium

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "pictures"
LONG: Final = "eu-central-1.payments.card-transactions.authorised.v2-compacted-by-customer"
"""A name that fits no phone's line."""
TOPICS: Final = ("orders", "payments", "shipments", "clicks", LONG)
GROUP: Final = "order-processing"
LONG_GROUP: Final = f"connect-sink.{LONG}"
TRANSACTION: Final = "orders-to-payments-1"
ENDED: Final = "orders-to-payments-2"
PAGES: Final = (
    "/",
    "/topics",
    "/topic?name=orders",
    "/topic/messages?name=orders&count=10",
    "/topic/messages?name=payments&isolation=read_uncommitted",
    "/topic/tail?name=orders",
    "/topic/configs?name=orders",
    "/topic/groups?name=orders",
    "/topic/producers?name=payments",
    f"/topic/access?name={LONG}",
    "/topic/record?name=orders&partition=0&offset=1",
    f"/topic?name={LONG}",
    f"/topic/messages?name={LONG}&count=10",
    "/groups",
    f"/group?name={GROUP}",
    f"/group?name={LONG_GROUP}",
    f"/group/reset?name={LONG_GROUP}&topic=orders&to=earliest",
    "/brokers",
    "/broker?id=1",
    "/transactions",
    f"/transaction?id={TRANSACTION}",
    "/access",
    "/subjects",
    "/clients",
    "/charts",
    "/nothing",
)
"""Every page, with what a cluster may show on it; ten records show what fifty do, and are looked at sooner."""
CHARTS_MS: Final = 700
SEARCHED: Final = re.compile("found|Following|looked|Nothing")
PICTURES: Final = {
    "overview": "/",
    "messages": "/topic/messages?name=orders",
    "group": f"/group?name={GROUP}",
}


@contextmanager
def world() -> Iterator[tuple[str, str]]:
    """Run a broker with something to see; yield its address and that of its /metrics."""
    port = free_port()
    properties = {
        "kafkapy.admin.listener": f"127.0.0.1:{port}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(properties=properties) as broker:
        servers = broker.bootstrap_servers
        stop = threading.Event()
        member = _fill(broker, servers)
        thread = threading.Thread(target=_produce_steadily, args=(servers, stop), name="pictures-flow")
        thread.start()
        try:
            yield servers, f"http://127.0.0.1:{port}/metrics"
        finally:
            stop.set()
            thread.join()
            member.close()


def _fill(broker: Broker, servers: str) -> Any:
    """Make topics, groups, transactions, a user and ACLs; return the group's member, which the caller closes."""
    import confluent_kafka as kafka

    for name in TOPICS:
        broker.create_topics(name, partitions=3)
    producer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": ENDED, "client.id": "shop"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(200):
        _produce(producer, number)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("payments", b"\x00\x01\xfe\xff" * 8, b"binary", 0)
    producer.abort_transaction(30)
    opened = kafka.Producer({"bootstrap.servers": servers, "transactional.id": TRANSACTION})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce("payments", json.dumps({"payment": 1, "state": "open"}), "p1", 0)
    opened.flush(30)
    for group, read in ((GROUP, 40), (LONG_GROUP, 3)):
        committing = kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
        offsets = [kafka.TopicPartition("orders", each, read) for each in range(2)]
        committing.commit(offsets=offsets, asynchronous=False)
        committing.close()
    member = kafka.Consumer({"bootstrap.servers": servers, "group.id": GROUP, "client.id": "worker-1"})
    member.subscribe(["orders"])
    deadline_s = time.monotonic() + 30
    while not member.assignment() and time.monotonic() < deadline_s:
        member.poll(0.1)
    _create_user_and_acls(servers)
    return member


def _produce(producer: Any, number: int) -> None:
    order = {
        "order": number,
        "customer": {"id": f"c{number % 17}", "country": ("DE", "IT", "CN", "VN")[number % 4]},
        "items": [{"sku": f"sku-{number % 5}", "count": 1 + number % 3}],
        "total": round(9.99 + number / 7, 2),
        "express": number % 5 == 0,
        "note": None,
    }
    headers = [("trace-id", f"{number:032x}".encode()), ("source", b"web")]
    producer.produce("orders", json.dumps(order), f"c{number % 17}", number % 3, headers=headers)
    producer.produce(
        LONG, json.dumps({"card": f"{number:04}", "state": "authorised"}), f"card-{number % 9}", number % 3
    )


def _create_user_and_acls(servers: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": servers})
    acls = [
        admin.AclBinding(
            admin.ResourceType.TOPIC, name, pattern, principal, "*", operation, admin.AclPermissionType.ALLOW
        )
        for name, pattern, principal, operation in (
            ("orders", admin.ResourcePatternType.LITERAL, "User:shop", admin.AclOperation.WRITE),
            ("eu-central-1.", admin.ResourcePatternType.PREFIXED, "User:payments-service", admin.AclOperation.READ),
        )
    ]
    for future in client.create_acls(acls).values():
        future.result(30)
    credential = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 4096)
    users: list[Any] = [admin.UserScramCredentialUpsertion("shop", credential, b"a password of the pictures")]
    for future in client.alter_user_scram_credentials(users).values():
        future.result(30)


def _produce_steadily(servers: str, stop: threading.Event) -> None:
    """Produce some records twice a second, so that charts have something to draw."""
    import confluent_kafka as kafka

    producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
    number = 1000
    while not stop.wait(0.5):
        for _ in range(50 + 40 * (number // 250 % 3)):
            _produce(producer, number)
            number += 1
        producer.poll(0)
    producer.flush(10)


@contextmanager
def console_of(servers: str, *options: str) -> Iterator[str]:
    """Run the console; yield its address."""
    command = [sys.executable, "-m", "kafkapy", "console", "-b", servers, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@contextmanager
def browser() -> Iterator[Any]:
    """Run Chromium. Raises FileNotFoundError where there is none."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        raise FileNotFoundError(CHROMIUM_MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"], timeout=120_000
        )
        yield running
        running.close()


def wait_until_ready(page: Any) -> None:
    """Wait until a search has ended or a tail follows."""
    if page.locator(".state").count():
        page.locator(".state").filter(has_text=SEARCHED).wait_for()


def take(
    address: str,
    running: Any,
    folder: Path,
    paths: Sequence[tuple[str, str]],
    width: int,
    scheme: str,
    *,
    opens: bool = False,
) -> None:
    """Write a picture of each (name, path). `opens`: with the first record opened, if there are any."""
    context = running.new_context(base_url=address, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    for name, path in paths:
        page.goto(path)
        wait_until_ready(page)
        if opens and page.locator(".records summary").count():
            page.locator(".records summary").first.click()
        page.wait_for_timeout(CHARTS_MS)
        page.screenshot(path=folder / f"{name}.png", full_page=width < 500 and not opens)
    context.close()


def take_all(address: str, running: Any, folder: Path) -> None:
    """Write the pictures that the documents show."""
    take(address, running, folder, list(PICTURES.items()), 1280, "light", opens=True)
    take(address, running, folder, [("phone", PICTURES["messages"])], 390, "dark", opens=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.console_pictures", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with (
        world() as (servers, metrics),
        console_of(servers, "--metrics", metrics, "--allow-changes") as address,
        browser() as running,
    ):
        time.sleep(40)  # a chart of one point says nothing
        take_all(address, running, folder)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
