"""Frames that are damaged, cut, hostile or made up: the broker stays up, answers others at once, and does not grow.

The frames are Apache Kafka's own requests of golden/messages.jsonl.gz, every served API at every version, as they are
and then changed at random (seeded). A canary connection is asked after each batch of them.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from selectors import EVENT_READ, DefaultSelector

import pytest

from harness.servers import Kafkapy
from kafkapy.handlers.table import ServedApi
from kafkapy.protocol.api import request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.record.builder import seal
from kafkapy.record.compression import GZIP, LZ4, MAX_APPENDED_BYTES, NONE, SNAPPY, ZSTD, compress
from tests.support.bad_frames import changed, changed_batch, frames_of, header, served
from tests.support.batches import build_batch
from tests.support.client_requests import LATEST, batch_of, consume, create_topic, list_offset, metadata, produce
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

FRAMES_PER_BATCH = 40
"""Connections are made at once: more than the listener's backlog of 50 would wait for the kernel's second try."""
ROUNDS = 2
ANSWERED_WITHIN_CPU_S = 1.0
"""Of the broker's CPU time: how long a busy machine takes says nothing."""
SETTLED_WITHIN_S = 0.25
"""Until a fetch is taken for one that waits, and left to it."""
PATIENCE_S = 60
"""For answers that must come."""
GROWTH_MB = 48.0
MAX_INFLATED_MB = MAX_APPENDED_BYTES / 2**20
PRODUCE, FETCH = 0, 1
ACL_APIS = (29, 30, 31)
"""DescribeAcls, CreateAcls, DeleteAcls: made-up ones have the code 0 (UNKNOWN), at which Apache Kafka closes, too."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    receiver = {"kafkapy.admin.listener": "127.0.0.1:0"}  # of clients' metrics: so that their APIs are served, too
    with Kafkapy(tmp_path / "data", receiver) as running:
        yield running


# -- sending and watching -------------------------------------------------------------------------------------------


class Canary:
    """A connection that was there before: asked after each batch, it must be answered soon, by the same broker."""

    def __init__(self, broker: Kafkapy) -> None:
        self._broker = broker
        self.client = WireClient(broker.bootstrap)

    def check(self) -> None:
        """Ask; the broker that started is still there and answers in time."""
        assert self._broker.process is not None
        assert self._broker.process.poll() is None, "the broker is gone"
        started_s = self._broker.cpu_s()
        assert self.client.call(ApiVersionsRequest(), 2).error_code == 0
        assert self._broker.cpu_s() - started_s < ANSWERED_WITHIN_CPU_S


@pytest.fixture
def canary(broker: Kafkapy) -> Iterator[Canary]:
    watching = Canary(broker)
    with watching.client:
        yield watching


def send_batch(broker: Kafkapy, frames: list[bytes], settled_within_s: float = SETTLED_WITHIN_S) -> dict[int, bytes]:
    """Send each frame over a connection of its own; return what came back by index, b"" where it was closed.

    Connections with neither, because their request waits, are left out.
    """
    with ExitStack() as stack, DefaultSelector() as selector:
        for index, frame in enumerate(frames):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            selector.register(connection, EVENT_READ, index)
        return collect(selector, len(frames), settled_within_s)


def collect(selector: DefaultSelector, count: int, settled_within_s: float) -> dict[int, bytes]:
    results: dict[int, bytes] = {}
    last_event = time.monotonic()
    while len(results) < count and time.monotonic() - last_event < settled_within_s:
        for key, _ in selector.select(settled_within_s):
            connection: socket.socket = key.fileobj  # type: ignore[assignment]
            results[key.data] = received(connection)
            selector.unregister(connection)
            last_event = time.monotonic()
    return results


def received(connection: socket.socket) -> bytes:
    """Return a response as a whole, b"" if the connection is closed instead."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            return b""
        if not part:
            return b""
        data += part
    return data


# -- what is well-formed is answered --------------------------------------------------------------------------------


def test_every_served_version_answers_kafkas_own_request_in_its_format(broker: Kafkapy, canary: Canary) -> None:
    """Names, ids and numbers in them are made up, so most responses are errors; but answers."""
    for api, version in served():
        frames = frames_of(api, version)
        results = send_batch(broker, frames, PATIENCE_S)
        canary.check()
        for index, frame in enumerate(frames):
            if may_close(api, frame, version):
                continue
            response = results[index]
            assert response, f"closed by {request_type(api.api_key).NAME} v{version}"
            assert len(response) == int.from_bytes(response[:4], "big") + 4
            correlation_id, position = read_response_header(response[4:], api.api_key, version)
            assert correlation_id == 42
            response_type(api.api_key).decode(response[4 + position :], version)


def may_close(api: ServedApi, frame: bytes, version: int) -> bool:
    """Errors under acks=0 close, as does an isolation level that does not exist, and an unknown code of an ACL."""
    if api.api_key in ACL_APIS:
        return True
    body = len(header(api.api_key, version))
    request, _ = request_type(api.api_key).read(frame, body, version)
    return getattr(request, "acks", 1) == 0 or getattr(request, "isolation_level", 0) not in (0, 1)


# -- what is not ----------------------------------------------------------------------------------------------------


def test_changed_frames_of_every_served_version_hurt_nobody_else(broker: Kafkapy, canary: Canary) -> None:
    random = Random(20190718)
    for api, version in served():
        send_batch(broker, frames_of(api, version)[:1])
    before_mb = broker.memory_mb()
    sent = 0
    for api, version in [*served()] * ROUNDS:
        frames = frames_of(api, version)
        batch = [changed(random.choice(frames), random) for _ in range(FRAMES_PER_BATCH)]
        send_batch(broker, batch)
        sent += len(batch)
        canary.check()
    assert sent > 8000
    assert broker.memory_mb() - before_mb < GROWTH_MB
    assert metadata(canary.client).brokers
    assert not crashes_in(broker)


def crashes_in(broker: Kafkapy) -> list[str]:
    """Return what the log says of mistakes of ours: a malformed request must never come that far."""
    log = Path(f"{broker.directory}.log").read_text(errors="replace")
    return [line for line in log.splitlines() if "Traceback" in line or line.startswith("AssertionError")]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_changed_batches_are_refused_or_can_be_read(broker: Kafkapy, canary: Canary, codec: int) -> None:
    """With their CRC put right, so that the records are looked at: what is taken must not break its consumers."""
    random = Random(codec)
    client = canary.client
    create_topic(client, "t", retention_ms="-1")  # the records are old
    headers = [("name", b"value"), ("empty", None)]
    records = [(1_700_000_000_000 + n, b"k%d" % n, b"v" * n * 3, headers[: n % 3]) for n in range(40)]
    for producer_id in (-1, 7):
        fields = {
            "producer_id": producer_id,
            "producer_epoch": min(producer_id, 0),
            "base_sequence": min(producer_id, 0),
        }
        batch = build_batch(records, compression=codec, **fields)
        codes = [produce(client, "t", changed_batch(batch, random)).error_code for _ in range(300)]
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes
        assert {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE} & set(codes)
        canary.check()
    end = list_offset(client, "t", LATEST).offset
    offsets = [record.offset for record in consume(client, "t", offset=0, end_offset=end)]
    assert offsets == list(range(end))
    assert not crashes_in(broker)


def test_bytes_that_are_no_protocol_at_all_hurt_nobody_else(broker: Kafkapy, canary: Canary) -> None:
    random = Random(1979)
    hello = [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 64]
    for _ in range(20):
        with ExitStack() as stack:
            for data in [*hello, *(random.randbytes(random.randrange(1, 300)) for _ in range(20))]:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
                connection.sendall(data)
            canary.check()
    assert not crashes_in(broker)


def test_frames_that_are_announced_but_never_come_cost_no_memory(broker: Kafkapy, canary: Canary) -> None:
    """Memory follows what was received, not what a size promises. CVE-2022-34917."""
    before_mb = broker.memory_mb()
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
            connection.sendall(struct.pack(">i", 100 << 20) + header(PRODUCE, 9))
        for _ in range(10):
            canary.check()
        assert broker.memory_mb() - before_mb < GROWTH_MB
    canary.check()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_inflates_a_thousandfold_is_not_inflated_whole(
    broker: Kafkapy, canary: Canary, codec: int
) -> None:
    """CVE-2023-34455: a few KiB to 24 MiB here, and what is held of it is bounded (twice: zlib copies)."""
    create_topic(canary.client, "bombs")
    before_mb = broker.memory_mb()
    header_bytes = batch_of(1)[:61]
    bomb = bytearray(seal(header_bytes, compress(codec, bytes(512 << 20))))
    bomb[22] = codec
    bomb[8:12] = (len(bomb) - 12).to_bytes(4, "big")
    sealed = seal(bytes(bomb[:61]), bytes(bomb[61:]))
    for _ in range(3):
        response = produce(canary.client, "bombs", sealed)
        assert response.error_code != 0
        assert response.base_offset == -1
        canary.check()
    assert broker.memory_mb("VmHWM") - before_mb < 2 * MAX_INFLATED_MB + GROWTH_MB


def test_requests_for_absurdly_much_are_refused_before_it_is_made(broker: Kafkapy, canary: Canary) -> None:
    create_topic(canary.client, "small")
    before_mb = broker.memory_mb()
    for count in (2**31 - 1, 1_000_000):
        topic = CreatableTopic(name="huge", num_partitions=count, replication_factor=1)
        (created,) = canary.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
        assert created.error_code == ErrorCode.POLICY_VIOLATION
        grown = CreatePartitionsRequest(
            [CreatePartitionsTopic("small", count=count, assignments=None)], timeout_ms=1000
        )
        (result,) = canary.client.call(grown, 3).results
        assert result.error_code == ErrorCode.POLICY_VIOLATION
        canary.check()
    assert broker.memory_mb() - before_mb < GROWTH_MB


def test_ten_thousand_requests_at_once_on_one_connection_are_all_answered(broker: Kafkapy, canary: Canary) -> None:
    with WireClient(broker.bootstrap) as client:
        frame = header(18, 2)
        data = (struct.pack(">i", len(frame)) + frame) * 500
        for _ in range(20):
            client.send_bytes(data)
            canary.check()
            for _ in range(500):
                client.receive_frame()
    assert not crashes_in(broker)
