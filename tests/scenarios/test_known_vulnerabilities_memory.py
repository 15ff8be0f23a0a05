"""A test for each vulnerability of Apache Kafka, its clients and its codecs that costs memory, named by its CVE.

The others: test_known_vulnerabilities.py. A broker is a process of its own, whose memory is watched, and a canary asks
it meanwhile.
"""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import snappy
import zstandard

from harness.servers import Kafkapy
from kafkapy.protocol.api import APIS
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.record.builder import seal
from kafkapy.record.compression import GZIP, LZ4, MAX_APPENDED_BYTES, SNAPPY, ZSTD, compress
from tests.support.client_requests import (
    LATEST,
    batch_of,
    create_topic,
    fetch,
    list_offset,
    produce,
    produce_request,
    values_in,
)
from tests.support.wire import ConnectionClosed, WireClient, request_frame

pytestmark = pytest.mark.ours

FRAME_MB = 1 << 20
MB_BEYOND_THE_FRAME = 64
OTHERS_WAIT_CPU_S = 1.0
"""Of the broker's CPU time."""
APIS_BY_NAME = {api.request_name.removesuffix("Request"): api for api in APIS.values()}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkapy]:
    with Kafkapy(tmp_path_factory.mktemp("process") / "data") as running:
        with WireClient(running.bootstrap) as client:
            create_topic(client, "bombs", max_message_bytes=str(8 << 20))  # 96 MiB take 5 MB in snappy
            produce(client, "bombs", batch_of(10))  # what is loaded once is no growth
        yield running


def costs(process: Kafkapy, frame: bytes) -> tuple[float, float]:
    """Send a frame; return for how much of the broker's CPU time another connection waited at most (s), and how much
    memory it took at most (MB).
    """
    process.forget_peak()
    before_mb = process.memory_mb()
    slowest_s = 0.0
    with WireClient(process.bootstrap) as canary, WireClient(process.bootstrap) as client:
        client.send_frame(frame)
        ends_at = time.monotonic() + 120
        is_over = False
        while not is_over and time.monotonic() < ends_at:
            began_s = process.cpu_s()
            assert canary.call(ApiVersionsRequest(), 2).error_code == 0
            slowest_s = max(slowest_s, process.cpu_s() - began_s)
            is_over = _is_answered_or_closed(client)
    assert is_over
    return slowest_s, process.memory_mb("VmHWM") - before_mb


def _is_answered_or_closed(client: WireClient) -> bool:
    try:
        return client.has_response(0.005)
    except ConnectionClosed:
        return True


def check_costs(process: Kafkapy, frame: bytes) -> None:
    """The workers' CPU time counts, too: others must have been served in time at one of three attempts."""
    waits_s: list[float] = []
    while not waits_s or (min(waits_s) >= OTHERS_WAIT_CPU_S and len(waits_s) < 3):
        waited_s, grown_mb = costs(process, frame)
        waits_s.append(waited_s)
        assert grown_mb < len(frame) / FRAME_MB + MB_BEYOND_THE_FRAME
    assert min(waits_s) < OTHERS_WAIT_CPU_S


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


@pytest.mark.parametrize("where", ["header", "body"])
def test_cve_2026_111115_tagged_fields_by_the_million_cost_nothing(process: Kafkapy, where: str) -> None:
    """ApiVersions 3 in 4 MB, before any login: the fields of its header have one bound, those of its body another."""
    count = 950_000
    tags = uvarint(count) + b"".join(uvarint(tag) + b"\0" for tag in range(count))
    start = struct.pack(">hhih", APIS_BY_NAME["ApiVersions"].key, 3, 1, 0)
    check_costs(process, start + (tags + b"\2a\2b\0" if where == "header" else b"\0\2a\2b" + tags))


def test_cve_2026_111108_arrays_by_the_million_cost_nothing(process: Kafkapy) -> None:
    """Metadata 1 with two million names in 4 MB."""
    count = 2_000_000
    start = struct.pack(">hhih", APIS_BY_NAME["Metadata"].key, 1, 1, 0)
    check_costs(process, start + struct.pack(">i", count) + bytes(2 * count))


@pytest.mark.parametrize("count", [2**31 - 1, 100_000_000, -2])
@pytest.mark.parametrize(("api", "version"), [("Metadata", 1), ("DeleteTopics", 1), ("DescribeGroups", 0)])
def test_cve_2022_34917_no_room_is_made_for_what_a_count_claims(
    process: Kafkapy, api: str, version: int, count: int
) -> None:
    frame = struct.pack(">hhihi", APIS_BY_NAME[api].key, version, 1, 0, count)
    check_costs(process, frame)


def test_cve_2022_34917_no_room_is_made_for_what_a_frame_claims(process: Kafkapy) -> None:
    """50 connections announce 100 MB each, and send 100 bytes of it, in two parts."""
    process.forget_peak()
    before_mb = process.memory_mb()
    with ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(WireClient(process.bootstrap))
            client.send_bytes(struct.pack(">i", 100_000_000) + struct.pack(">hhih", 3, 1, 1, 0) + bytes(60))
            with WireClient(process.bootstrap) as canary:  # by its response the part is received
                assert canary.call(ApiVersionsRequest(), 2).error_code == 0
            client.send_bytes(bytes(30))
        with WireClient(process.bootstrap) as canary:
            assert canary.call(ApiVersionsRequest(), 2).error_code == 0
        assert process.memory_mb("VmHWM") - before_mb < MB_BEYOND_THE_FRAME


def batch_with(codec: int, payload: bytes) -> bytes:
    header = bytearray(seal(batch_of()[:61], payload))
    header[22] = codec
    header[8:12] = (len(header) - 12).to_bytes(4, "big")
    return seal(bytes(header[:61]), payload)


SNAPPY_CLAIMS = {
    "2023_34455": (b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -1) + bytes(20), "a block of 4294967295 bytes"),
    "2023_43642": (b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1) + bytes(20), "a block of 2147483647 bytes"),
    "2023_34453": (
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 25) + b"\xff\xff\xff\xff\x0f" + bytes(20),
        "25 bytes cannot inflate to 4294967295",
    ),
    "2023_34454": (b"\xff\xff\xff\xff\x0f" + bytes(20), "25 bytes cannot inflate to 4294967295"),
}
"""A chunk of -1 byte, one of 2 GiB, 4 GiB in one chunk, and in none; and why they are refused: not by what the codec's
library says once it has made room. The last two overflowed where Java compresses."""


@pytest.mark.parametrize("cve", SNAPPY_CLAIMS)
def test_cve_2023_34455_43642_34453_34454_no_room_is_made_for_what_snappy_claims(process: Kafkapy, cve: str) -> None:
    payload, reason = SNAPPY_CLAIMS[cve]
    assert reason in refused(process, batch_with(SNAPPY, payload))


def refused(process: Kafkapy, batch: bytes) -> str:
    """Have a batch refused, which costs no more than a frame may; return the reason given."""
    process.forget_peak()
    before_mb = process.memory_mb()
    with WireClient(process.bootstrap) as client:
        response = produce(client, "bombs", batch)
        assert response.error_code != 0
        assert list_offset(client, "bombs", LATEST).offset == 10
    assert process.memory_mb("VmHWM") - before_mb < len(batch) / FRAME_MB + MB_BEYOND_THE_FRAME
    return str(response.error_message)


BOMBS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, partial(compress, GZIP)),
    "snappy": (SNAPPY, partial(compress, SNAPPY)),
    "raw snappy": (SNAPPY, snappy.compress),
    "lz4": (LZ4, partial(compress, LZ4)),
    "zstd": (ZSTD, partial(compress, ZSTD)),
    "zstd streamed": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_cve_2023_34455_a_bomb_is_not_inflated_to_its_end(process: Kafkapy, bomb: str) -> None:
    """96 MiB of zeros; the largest ones, several at a time: test_bad_input.py."""
    codec, compressed = BOMBS[bomb]
    reason = refused(process, batch_with(codec, compressed(bytes(96 << 20))))
    assert reason == f"the records inflate to more than {MAX_APPENDED_BYTES} bytes"


SECRET_BYTES = 40


def lz4_record(*, back: int) -> bytes:
    """Return the LZ4 frame of one record, most of whose value is a copy from `back` bytes before.

    It has one block: 64 KiB at most, independent, no checksums.
    """
    value = SECRET_BYTES + 6
    body = bytes((0, 0, 0, 1, value * 2))  # attributes, timestamp, offset, no key, size of the value
    head = bytes(((len(body) + value + 1) * 2,)) + body + b"v"
    sequences = bytes((len(head) << 4 | 15,)) + head + struct.pack("<H", back) + bytes((SECRET_BYTES - 4 - 15,))
    block = sequences + b"\x60vvvvv\0"  # the value's rest, no headers
    return b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", len(block)) + block + bytes(4)


@pytest.mark.parametrize("back", [8, 9, 999, 65535])
def test_cve_2025_66566_no_memory_is_copied_into_a_record(process: Kafkapy, back: int) -> None:
    """But for where its copy comes from, the record is right. Other damage: tests/property/test_records.py."""
    with WireClient(process.bootstrap) as client:
        name = f"copied-{back}"
        create_topic(client, name)
        assert produce(client, name, batch_with(LZ4, lz4_record(back=1))).error_code == 0
        assert values_in(fetch(client, name)) == [b"v" * (SECRET_BYTES + 6)]
    refused(process, batch_with(LZ4, lz4_record(back=back)))


def test_cve_2025_12183_no_memory_is_read_beyond_an_lz4_frame(process: Kafkapy) -> None:
    """Whatever is cut off, the end mark alone included."""
    whole = lz4_record(back=1)
    for end in range(len(whole)):
        assert ": lz4: " in refused(process, batch_with(LZ4, whole[:end]))


def test_cve_2026_35554_what_is_cut_off_puts_no_record_into_another_topic(process: Kafkapy) -> None:
    """A client's fault, of buffers used again while they are sent. Here: the end of a connection amid many requests."""
    with WireClient(process.bootstrap) as canary:
        for name in ("odd", "even"):
            create_topic(canary, name)
        for cut in (100, 3_000, 20_000, 100_000):
            with WireClient(process.bootstrap) as client:
                data = b""
                for number in range(60):
                    name = ("odd", "even")[number % 2]
                    frame = request_frame(produce_request(name, batch_of(value=name.encode() * 400)), 12)
                    data += struct.pack(">i", len(frame)) + frame
                client.send_bytes(data[:cut])
        for name in ("odd", "even"):
            assert set(values_in(fetch(canary, name))) <= {name.encode() * 400}


def test_cve_2026_35554_frames_that_arrive_in_turns_put_no_record_into_another_topic(process: Kafkapy) -> None:
    """Two connections, whose frames have the same size, each with a part of one while the other goes on."""
    names = ("here", "away")
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(process.bootstrap)) for _ in names]
        for name in names:
            create_topic(clients[0], name)
        frames = [request_frame(produce_request(name, batch_of(value=name.encode() * 9_000)), 12) for name in names]
        assert len(frames[0]) == len(frames[1])
        data = [struct.pack(">i", len(frame)) + frame for frame in frames]
        for start in range(0, len(data[0]), 9_000):
            for client, part in zip(clients, data, strict=True):
                client.send_bytes(part[start : start + 9_000])
                with WireClient(process.bootstrap) as canary:  # by its response the part is received
                    assert canary.call(ApiVersionsRequest(), 2).error_code == 0
        for client in clients:
            client.receive_frame()
        for name in names:
            assert values_in(fetch(clients[0], name)) == [name.encode() * 9_000]
