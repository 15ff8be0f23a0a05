"""The memory of what is idle: `python -m benchmarks.idle_memory`, kafkapy and Apache Kafka one after the other.

The resident memory of a node after its start, with 10,000 connections that have asked for ApiVersions once, with 10,000
groups that have one committed offset each, and with 1,000 transactional ids; each added to what was there before. The
last line is JSON. A JVM has its heap of 1 GiB from the start (-Xms), of which only pages that it has touched count:
garbage, too, until it is collected.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attack import create_topics
from benchmarks.wire import TIMEOUT_S, call, connect
from harness.servers import API_VERSIONS_FRAME, ApacheKafka, Kafkapy, Server
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

CONNECTIONS, GROUPS, TRANSACTIONAL_IDS = 10_000, 10_000, 1_000
TOPIC = "idle"
VERSIONS = {FindCoordinatorRequest: 4, OffsetCommitRequest: 8, InitProducerIdRequest: 4}
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
SETTLE_S = 3.0


def measure(server: Server, share: float) -> dict[str, float]:
    """Return memory in MB: after the start, and what each kind of idle thing has added."""
    connections, groups, ids = (int(count * share) for count in (CONNECTIONS, GROUPS, TRANSACTIONAL_IDS))
    figures: dict[str, float] = {}
    create_topics(server, **{TOPIC: 1})
    with connect(server) as connection:
        figures["started_mb"] = _settled_mb(server)
        kept: list[socket.socket] = []
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            (f"{connections}_connections_mb", lambda: kept.extend(_connected(server) for _ in range(connections))),
            (f"{groups}_groups_mb", lambda: _commit(connection, groups)),
            (f"{ids}_transactional_ids_mb", lambda: _init_producers(connection, ids)),
        )
        for name, step in steps:
            before_mb = _settled_mb(server)
            step()
            figures[name] = round(_settled_mb(server) - before_mb, 2)
        for each in kept:
            each.close()
    return figures


def _settled_mb(server: Server) -> float:
    time.sleep(SETTLE_S)
    return round(server.memory_mb(), 1)


def _connected(server: Server) -> socket.socket:
    connection = connect(server)
    connection.sendall(API_VERSIONS_FRAME)
    assert connection.recv(1 << 16), "the broker closed the connection"
    return connection


def _commit(connection: socket.socket, groups: int) -> None:
    """Commit an offset for each group; the coordinator's topic is made with the first."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    for number in range(groups):
        group_id = f"group-{number}"
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        _until_answered(
            connection,
            request,
            lambda response: response.topics[0].partitions[0].error_code,
            GROUP_COORDINATOR,
            group_id,
        )


def _init_producers(connection: socket.socket, ids: int) -> None:
    for number in range(ids):
        name = f"producer-{number}"
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        _until_answered(connection, request, lambda response: response.error_code, TRANSACTION_COORDINATOR, name)


def _until_answered(
    connection: socket.socket, request: Any, error_of: Callable[[Any], int], key_type: int, key: str
) -> None:
    """Send a request until it is answered without an error: its coordinator may be still in the making."""
    until = time.monotonic() + TIMEOUT_S
    while error_of(_ask(connection, request)):
        assert time.monotonic() < until, f"{request} is refused"
        _ask(connection, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        time.sleep(0.1)


def _ask(connection: socket.socket, request: Any) -> Any:
    return call(connection, request, VERSIONS[type(request)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_memory")
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers above")
    parser.add_argument("--only", choices=("kafkapy", "apache"))
    arguments = parser.parse_args()
    figures = {}
    for kind, name in ((Kafkapy, "kafkapy"), (ApacheKafka, "apache")):
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory() as directory, kind(Path(directory, "data")) as server:
                figures[name] = measure(server, arguments.share)
                print(name, figures[name], flush=True)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
