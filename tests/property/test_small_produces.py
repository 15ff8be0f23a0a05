"""Produce requests served together are served as one by one: the same answers, files and producers, whatever is sent.

Two brokers on virtual time get the same bytes at the same moments: one serves what arrives together as it can, the
other each request by its handler. What the handler does with each is the affair of tests/scenarios and tests/golden.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

import pytest
from crc32c import crc32c

from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.serving import coalesce_nothing
from kafkapy.record.batch import ATTRIBUTES_POSITION, CRC_POSITION
from kafkapy.record.compression import GZIP
from kafkapy.storage.log.log import Log
from tests.simulator.broker_world import Machine, Topic
from tests.simulator.loop import START_WALL_MS, SimLoop, run
from tests.support.batches import build_batch
from tests.support.copying import IS_SOAKED
from tests.support.wire import request_frame

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class ProduceCase:
    """One request: records as (age in ms, key, value, headers), and what is unusual about it.

    producer: id, epoch, and how far the sequence number is from what would be the next. batch: as build_batch takes
    it; is_repeated: twice in one request. forged: a byte of the batch and what it is XORed with, under a right CRC.
    flip: a byte to break, from the frame's end; tail: bytes behind the request. beside: what is unusual about further
    batches of the same request.
    """

    records: tuple[Any, ...] = ((0, None, b"v", ()),)
    producer: tuple[int, int, int] | None = None
    partition: int = 0
    acks: int = 1
    version: int = 13
    client_id: str | None = "c"
    batch: tuple[tuple[str, Any], ...] = ()
    is_repeated: bool = False
    forged: tuple[int, int] | None = None
    flip: int | None = None
    tail: bytes = b""
    beside: "tuple[ProduceCase, ...]" = ()


Sequences: TypeAlias = dict[tuple[int, int, int], int]
"""The next sequence number by partition, producer id and producer epoch."""


def of(*values: bytes | None, age_ms: int = 0, key: bytes | None = None, headers: Any = (), **rest: Any) -> ProduceCase:
    return ProduceCase(tuple((age_ms, key, value, headers) for value in values), **rest)


def batch(**fields: Any) -> ProduceCase:
    return ProduceCase(batch=tuple(fields.items()))


PLAIN = ProduceCase()
ODD = [
    *(of(b"v" * size) for size in (0, 50, 57, 58, 64, 700, 9000, 16_230, 20_000)),
    *(of(b"v", key=b"k" * size) for size in (0, 1, 63, 64, 200)),
    of(None),
    of(None, key=b"k"),
    of(b"v", headers=(("h", b"1"),)),
    of(b"1", b"2", b"3"),
    ProduceCase(((0, None, b"1", ()), (-90, None, b"2", ()), (5, b"k", b"3", ()))),
    ProduceCase(((0, None, b"1", ()), (3 * HOUR_MS, b"k", b"2", ()))),
    ProduceCase(((0, None, b"1", ()), (-2 * HOUR_MS, b"k", b"2", ()))),
    *(
        of(b"v", age_ms=age_ms)
        for age_ms in (-1, 90, HOUR_MS, 3 * HOUR_MS, -2 * HOUR_MS, START_WALL_MS + 1, START_WALL_MS + 5)
    ),
    batch(compression=GZIP),
    batch(base_offset=1),
    batch(is_control=True),
    batch(max_timestamp=START_WALL_MS + 5),
    batch(max_timestamp=START_WALL_MS - 5),
    batch(timestamp_type=1, max_timestamp=START_WALL_MS),
    batch(last_offset_delta=7),
    batch(offset_deltas=(3,)),
    batch(offset_deltas=(3,), last_offset_delta=0),
    batch(delete_horizon_ms=START_WALL_MS),
    batch(is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
    batch(producer_id=9, producer_epoch=-1, base_sequence=0),
    batch(producer_id=9, producer_epoch=0, base_sequence=-1),
    batch(producer_id=9, producer_epoch=0, base_sequence=5),
    *(replace(PLAIN, acks=acks) for acks in (-1, 0, 2)),
    *(replace(PLAIN, version=version) for version in (12, 11, 10, 9, 8, 3)),
    *(replace(PLAIN, client_id=client_id) for client_id in (None, "", "another", "\u00fc")),
    *(replace(PLAIN, partition=partition) for partition in (1, 2)),
    *(replace(PLAIN, producer=(1, 0, gap)) for gap in (0, -1, -2, 1)),
    replace(PLAIN, producer=(1, 1, 0)),
    replace(PLAIN, producer=(2, 0, 0)),
    of(b"1", b"2", producer=(2, 0, 0)),
    *(replace(PLAIN, flip=flip) for flip in range(150)),
    *(replace(PLAIN, version=11, flip=flip) for flip in range(70, 130)),
    *(replace(PLAIN, forged=(at, change)) for at in range(69) for change in (0x01, 0x02, 0x80)),
    *(of(b"v" * 70, key=b"k", forged=(at, change)) for at in range(61, 75) for change in (0x01, 0x02, 0x80)),
    of(None, forged=(-1, 0x02)),
    of(None, forged=(-2, 0x02)),
    replace(PLAIN, tail=b"\1"),
    replace(PLAIN, is_repeated=True),
]
"""Requests as they come and as they should not: what stands in the way of serving them together, or seems to."""

EDGES = [
    [of(b"v", age_ms=age_ms) for age_ms in (0, -90, -180, -180, 0)],  # in a segment that is empty
    [batch(producer_id=77, producer_epoch=0, base_sequence=number) for number in (2**31 - 2, 2**31 - 1, 0, 1)],
    [
        of(b"1", b"2", batch=(("producer_id", 78), ("producer_epoch", 0), ("base_sequence", number)))
        for number in (2**31 - 3, 2**31 - 1, 1, 3)
    ],
    [replace(PLAIN, version=version) for version in (9, 10, 11, 12, 13, 13, 12, 12)],
]
"""Requests that are odd only because of those before them."""

CONFIGS: list[dict[str, str]] = [
    {},
    {"index_interval_bytes": "0"},
    {"index_interval_bytes": "200"},
    {"index_interval_bytes": "100", "segment_index_bytes": "24"},
    {"index_interval_bytes": "200", "segment_index_bytes": "24"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": str(2 * HOUR_MS), "index_interval_bytes": "1000"},
    {"compression_type": "uncompressed"},
    {"compression_type": "gzip"},
    {"cleanup_policy": "compact"},
    {"max_message_bytes": "100"},
    {"flush_messages": "4"},
    {"flush_messages": "100"},
    {"segment_ms": "50"},
    {"min_insync_replicas": "2"},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_an_odd_request_among_others_has_its_outcome_and_they_have_theirs(config: dict[str, str]) -> None:
    pieces = list(EDGES)
    for number, odd in enumerate(ODD, start=100):
        usual = replace(PLAIN, producer=(number, 0, 0))
        pieces.append([usual, PLAIN, usual, odd, odd, usual])
    together, alone = (run(lambda loop, way=way: serve(loop, config, pieces, way)) for way in (True, False))
    assert together == alone


@pytest.mark.parametrize("seed", range(6 if IS_SOAKED else 3))
def test_whatever_is_sent_together_has_the_outcome_of_each_alone(seed: int) -> None:
    random = Random(seed)
    usual = [PLAIN, PLAIN, PLAIN, *(replace(PLAIN, producer=(number, 0, 0)) for number in (1, 1, 2))]
    unlikely = [odd for odd in ODD if odd.flip is None and odd.forged is None]
    pieces = [
        [random.choice(usual if random.random() < 0.9 else unlikely) for _ in range(random.randint(1, 50))]
        for _ in range(40)
    ]
    together, alone = (run(lambda loop, way=way: serve(loop, {}, pieces, way)) for way in (True, False))
    assert together == alone


async def serve(
    loop: SimLoop, config: dict[str, str], pieces: list[list[ProduceCase]], is_together: bool, partition_count: int = 2
) -> Any:
    """Return all that clients and the disk see of these requests; those of a piece arrive together."""
    machine = Machine(loop)
    await machine.boot()
    if not is_together:
        for processor in machine.server._reactor.processors:
            processor.serving = replace(processor.serving, coalesce=coalesce_nothing)
    topic = await machine.connect().create_topic("ticks", partition_count, **config)
    client = machine.connect().link
    sequences: Sequences = {}
    seen = []
    for piece in pieces:
        await client.send(b"".join(framed(requested, topic, sequences) for requested in piece) + LAST)
        while LAST_RESPONSE not in client.received and not client.is_ended:
            await client._wait_change()
        seen.append((bytes(client.received), client.is_ended))
        client.received.clear()
        if client.is_ended:
            client = machine.connect().link
    logs = {each.partition: described(log) for each, log in machine.logs().items() if each.topic == "ticks"}
    await machine.stop()
    return seen, logs


def described(log: Log) -> Any:
    segments = [
        (
            segment.base_offset,
            segment.log.file.pread(segment.size, 0),
            segment.offset_index.read_all(),
            segment.time_index.read_all(),
            segment.largest_timestamp,
        )
        for segment in log.segments
    ]
    kept = {entry.producer_id: list(entry.batches) for entry in log.producer_state.producers.values()}
    producers = log.producer_state
    return segments, log.log_end_offset, log.high_watermark, producers.map_end_offset, producers.encode_snapshot(), kept


def framed(requested: ProduceCase, topic: Topic, sequences: Sequences) -> bytes:
    """Return a request as it is sent."""
    named = TopicProduceData(
        topic.name,
        topic_id=topic.topic_id,
        partition_data=[data_of(each, sequences) for each in (requested, *requested.beside)],
    )
    request = ProduceRequest(acks=requested.acks, timeout_ms=1000, topic_data=[named])
    body = bytearray(
        request_frame(request, requested.version, correlation_id=7, client_id=requested.client_id) + requested.tail
    )
    if requested.flip is not None:
        body[-1 - requested.flip % len(body)] ^= 0x11
    return len(body).to_bytes(4, "big") + bytes(body)


def data_of(requested: ProduceCase, sequences: Sequences) -> PartitionProduceData:
    fields = dict(requested.batch)
    if requested.producer is not None:
        producer_id, producer_epoch, gap = requested.producer
        key = (requested.partition, producer_id, producer_epoch)
        first = max(sequences.get(key, 0) + gap, 0)
        fields |= {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": first}
        sequences[key] = max(sequences.get(key, 0), first + len(requested.records))
    records = [(START_WALL_MS - age_ms, key, value, headers) for age_ms, key, value, headers in requested.records]
    written = bytearray(build_batch(records, **fields))
    if requested.forged is not None:
        position, change = requested.forged
        written[position % len(written)] ^= change
        written[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(written[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return PartitionProduceData(requested.partition, records=bytes(written) * (2 if requested.is_repeated else 1))


_LAST_BODY = request_frame(ApiVersionsRequest(), 0, correlation_id=0x7E7E7E7E)
LAST = len(_LAST_BODY).to_bytes(4, "big") + _LAST_BODY
LAST_RESPONSE = (0x7E7E7E7E).to_bytes(4, "big")
