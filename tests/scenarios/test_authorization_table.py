"""What every handler asks the authorizer: the audit log beside Apache Kafka's (tools/record_authorization_table.py).

tests/golden/authorization.tsv is the table: API and version, what is requested, from which address (127.0.0.2 may do
everything, .3 nothing, .4 nothing to the cluster, .5 nothing to topics), a question, the authorization errors answered.
authorization_controller.tsv is the same for the controllers' listener.
"""

import logging
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from harness.listeners import listener_keys
from harness.servers import free_port
from kafkapy import Broker
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, ServedApi
from kafkapy.protocol.api import APIS
from tests.support.authorization_script import ALL, NO_TOPIC, PROPERTIES, play, request, set_up
from tests.support.batches import build_batch
from tests.support.client_requests import until
from tests.support.controller_authorization_script import play_controller
from tests.support.wire import WireClient, request_frame

GOLDEN = Path(__file__).parents[1] / "golden" / "authorization.tsv"
OF_CONTROLLER = GOLDEN.with_name("authorization_controller.tsv")
ASKED_NOTHING = frozenset((17, 18, 36, 71, 72))
"""SaslHandshake, ApiVersions, SaslAuthenticate, and those of telemetry: no right is asked for."""
TRACE = 5

pytestmark = pytest.mark.ours


class AuditLog(logging.Handler):
    """Keeps the lines of the audit log until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        level = "TRACE" if record.levelno == TRACE else record.levelname
        self._lines.append(f"{level} {record.getMessage()}")

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


@pytest.fixture
def audit() -> Iterator[AuditLog]:
    logger, handler = logging.getLogger("kafka.authorizer.logger"), AuditLog()
    before, propagates = logger.level, logger.propagate
    logger.setLevel(TRACE)
    logger.propagate = False
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)
    logger.propagate = propagates


def by_request(rows: list[str]) -> dict[str, list[str]]:
    """Return the rows of each request, by API, what it asks for, and host."""
    return {key: list(group) for key, group in groupby(rows, lambda row: "\t".join(row.split("\t")[:3]))}


def test_every_handler_authorizes_what_apache_kafkas_authorizes(audit: AuditLog) -> None:
    with Broker(properties=PROPERTIES) as broker:
        found = by_request(list(play(broker.bootstrap_servers, audit.take, BROKER_APIS)))
    compare(found, GOLDEN)


def test_every_handler_of_a_controller_authorizes_what_apache_kafkas_authorizes(audit: AuditLog) -> None:
    ports = {"PLAINTEXT": free_port(), "CONTROLLER": free_port()}
    controller = f"127.0.0.1:{ports['CONTROLLER']}"
    keys = {**PROPERTIES, **listener_keys(ports), "controller.quorum.bootstrap.servers": controller}
    with Broker(properties=keys) as broker:
        found = by_request(list(play_controller(broker.bootstrap_servers, controller, audit.take)))
    compare(found, OF_CONTROLLER)


def once(rows: list[str]) -> list[str]:
    """Return the rows without repetition for changes of configs: Apache Kafka's broker and its controller both ask."""
    return list(dict.fromkeys(rows)) if "AlterConfigs" in rows[0] else rows


def compare(found: dict[str, list[str]], golden: Path) -> None:
    """Fail with the rows that differ from Apache Kafka's."""
    expected = by_request(golden.read_text(encoding="utf-8").splitlines())
    assert found.keys() == expected.keys(), "record anew: python -m tools.record_authorization_table"
    differing = {key: (rows, expected[key]) for key, rows in found.items() if once(rows) != once(expected[key])}
    assert not differing, "\n".join(
        f"{whose}: {row}"
        for ours, theirs in differing.values()
        for whose, rows, others in (("ours", ours, theirs), ("Apache Kafka's", theirs, ours))
        for row in rows
        if row not in others
    )


@pytest.mark.parametrize("host", [ALL, NO_TOPIC])
def test_small_produces_that_come_together_are_authorized_once_each(audit: AuditLog, host: str) -> None:
    batch = build_batch([(1, None, b"v", ())])
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    produce = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": data}
    frame = request_frame(request("Produce", produce), 12, correlation_id=7)
    with Broker(properties=PROPERTIES) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            set_up(client)
        with WireClient(broker.bootstrap_servers, source_host=host) as client:
            audit.take()
            client.send_bytes((len(frame).to_bytes(4, "big") + frame) * 5)
            for _ in range(5):
                client.receive_frame()
        requested = [line.partition(" from host")[0] for line in audit.take() if f"from host = {host} " in line]
    level, verdict = ("DEBUG", "Allowed") if host == ALL else ("INFO", "Denied")
    assert requested == [f"{level} Principal = User:ANONYMOUS is {verdict} operation = WRITE"] * 5


def test_topics_that_match_an_expression_are_authorized_after_the_response(audit: AuditLog) -> None:
    """As those of Metadata of all topics: who may not describe one is refused nothing, and the log says so at TRACE."""
    asked: list[str] = []

    def has_asked(host: str) -> bool:
        asked.extend(line for line in audit.take() if f"host = {host} on resource = Topic:LITERAL:orders " in line)
        return bool(asked)

    with Broker(properties=PROPERTIES) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            set_up(client)
        for host, level, verdict in ((NO_TOPIC, "TRACE", "Denied"), (ALL, "DEBUG", "Allowed")):
            member = {
                "group_id": f"matching-{verdict}",
                "member_id": "m",
                "member_epoch": 0,
                "rebalance_timeout_ms": 300_000,
                "subscribed_topic_regex": "ord.*",
                "topic_partitions": [],
            }
            asked.clear()
            audit.take()
            with WireClient(broker.bootstrap_servers, source_host=host) as client:
                response = client.call(request("ConsumerGroupHeartbeat", member), 1)
                assert response.error_code == 0
                until(partial(has_asked, host))
                (line,) = asked
                assert line.startswith(f"{level} Principal = User:ANONYMOUS is {verdict} operation = DESCRIBE from")


@pytest.mark.parametrize(("golden", "apis"), [(GOLDEN, BROKER_APIS), (OF_CONTROLLER, CONTROLLER_APIS)])
def test_every_api_that_is_served_is_in_the_table(golden: Path, apis: dict[int, ServedApi]) -> None:
    covered = {row.split(" ")[0] for row in golden.read_text(encoding="utf-8").splitlines()}
    served = {APIS[key].request_name.removesuffix("Request") for key in apis if key not in ASKED_NOTHING}
    assert served == covered
