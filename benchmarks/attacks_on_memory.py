"""Attacks on memory: what grows with what peers send, or do not read, and quotas that a client escapes (B and C)."""

import itertools
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.attack import Attack, create_topics, hold, load_coordinator, repeat_made, second_port
from benchmarks.wire import PRODUCE_VERSION, call, connect, end_offsets, frame, produce_frame, receive
from harness.certificates import make_certificate
from harness.servers import Server, free_port
from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.builder import build_batch, build_batch_of_one, encode_record

TOPIC, GROUP = 2, 32
QUOTA = 100_000
"""Bytes a second of the client whose quota is escaped."""
PARTITIONS = 100
GUESSED_PARTITIONS = 1_000
GRANTED = 1_000
"""The first ids, a block of which the broker has been granted."""
MAX_PRODUCERS = 8_192
PRODUCERS_MB = 2
"""What half of so many (kafkapy.producers.max) take, and the sixteenth that one client may bring beyond it."""
UNGRANTED_MB = 16
"""The same of the 65,536 producers of ids that were never granted."""
REQUESTS_MB = 4
MAX_RECORD_BYTES = 16_384


# ---- responses that are not read


def _leave_topics_unread(server: Server, is_over: threading.Event) -> None:
    hold(server.port, is_over, frame(MetadataRequest(topics=None), 12) * 1_000, 60)


def _leave_names_unread(server: Server, is_over: threading.Event) -> None:
    """Names of 30,000 characters, each of which is in the response twice: 1 MB of them a request."""
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=f"{n:030000}") for n in range(33)]
    hold(server.port, is_over, frame(DescribeConfigsRequest(resources=resources), 4) * 4, 60)


def _leave_configs_unread(server: Server, is_over: threading.Event) -> None:
    """Groups need not exist to have configs, of which a response has some 30 MB with their documentation."""
    resources = [DescribeConfigsResource(resource_type=GROUP, resource_name=f"{n}") for n in range(19_000)]
    hold(server.port, is_over, frame(DescribeConfigsRequest(resources=resources, include_documentation=True), 4), 60)


def _create_wide(server: Server) -> None:
    create_topics(server, wide=5_000)


def _little_for_requests(directory: Path) -> dict[str, str]:
    """Requests may take 256 MiB here, without a bound in Apache Kafka; they are not what is measured."""
    return {"queued.max.request.bytes": str(REQUESTS_MB << 20), "socket.request.max.bytes": str(REQUESTS_MB << 20)}


# ---- before a login


def _secured_properties(directory: Path) -> dict[str, str]:
    """A plain listener, and one of TLS."""
    keys, _ = make_certificate(directory)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},TLS://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
    }


def _login_properties(directory: Path) -> dict[str, str]:
    """A plain listener, and one of SASL."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},LOGINS://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": f'{module} required user_alice="wonder";',
    }


def _send_hellos(server: Server, is_over: threading.Event, size: int) -> None:
    """The ClientHello of a handshake, without its last bytes."""
    message = b"\1" + size.to_bytes(3, "big") + bytes(size - 1_000)
    parts = [message[at : at + MAX_RECORD_BYTES] for at in range(0, len(message), MAX_RECORD_BYTES)]
    hello = b"".join(struct.pack(">BHH", 22, 0x0301, len(part)) + part for part in parts)
    hold(second_port(server), is_over, hello, 3_000)


def _send_before_login(server: Server, is_over: threading.Event, size: int) -> None:
    """A frame without its last byte."""
    hold(second_port(server), is_over, struct.pack(">i", size) + bytes(size - 1), 1_000)


# ---- what is kept of requests


def _joins(group: str, *, is_new: bool) -> Iterator[bytes]:
    """Joins without a member id, each of which is answered by one."""
    for number in itertools.count():
        request = JoinGroupRequest(
            group_id=f"{group}-{number}" if is_new else group,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata=b"")],
        )
        yield frame(request, 5)


def _make_member_ids(server: Server, is_over: threading.Event) -> None:
    repeat_made(server, is_over, _joins("one", is_new=False))


def _make_groups(server: Server, is_over: threading.Event) -> None:
    repeat_made(server, is_over, _joins(f"group-{threading.get_ident()}", is_new=True))


def _made_up_producers(first: int) -> Iterator[bytes]:
    """Requests with a batch for each partition, each of another producer."""
    for number in itertools.count(first, PARTITIONS):
        yield _of_producers((index, number + index) for index in range(PARTITIONS))


def _guessed_producers(first: int) -> Iterator[bytes]:
    """As _made_up_producers, of ids that somebody may have been granted, in more partitions."""
    for producer_id in itertools.count(first % GRANTED):
        for at in range(0, GUESSED_PARTITIONS, PARTITIONS):
            yield _of_producers((index, producer_id % GRANTED) for index in range(at, at + PARTITIONS))


def _of_producers(producers: Iterable[tuple[int, int]]) -> bytes:
    """Return a Produce of a batch for each (partition, producer id)."""
    now_ms, record = int(time.time() * 1000), encode_record(None, b"v")
    data = [
        PartitionProduceData(index, records=build_batch_of_one(record, now_ms, producer=(producer_id, 0, 0)))
        for index, producer_id in producers
    ]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData("taken", partition_data=data)])
    return frame(request, PRODUCE_VERSION)


def _make_producer_ids(server: Server, is_over: threading.Event) -> None:
    repeat_made(
        server, is_over, _made_up_producers(1_000_000_000 + threading.get_ident() % 1_000_000 * 10_000_000), depth=2
    )


def _guess_producer_ids(server: Server, is_over: threading.Event) -> None:
    repeat_made(server, is_over, _guessed_producers(threading.get_ident() >> 12), depth=2)


def _grant_ids(server: Server) -> None:
    create_topics(server, taken=GUESSED_PARTITIONS)
    with connect(server) as connection:
        deadline = time.monotonic() + 60
        while call(connection, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4).error_code:
            assert time.monotonic() < deadline


def _few_producers(directory: Path) -> dict[str, str]:
    """Their bound is to be reached in seconds."""
    return {"kafkapy.producers.max": str(MAX_PRODUCERS)}


def _create_taken(server: Server) -> None:
    create_topics(server, taken=PARTITIONS)


# ---- quotas


def _reconnect(server: Server, is_over: threading.Event) -> None:
    """Produce 100 KB over each connection, and go on with another one instead of waiting."""
    batch = build_batch([(int(time.time() * 1000), None, bytes(QUOTA), ())])
    produced = produce_frame("taken", 0, batch)
    while not is_over.is_set():
        with connect(server) as connection:
            connection.sendall(produced)
            connection.settimeout(1)
            try:
                receive(connection)
            except (OSError, AssertionError):
                continue


def _set_quota(server: Server) -> None:
    _create_taken(server)
    entry = EntryData(
        [EntityData("client-id", entity_name="bench")], ops=[OpData("producer_byte_rate", value=float(QUOTA))]
    )
    with connect(server) as connection:
        response = call(connection, AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert not response.entries[0].error_code, response


def _rate(server: Server, seconds: float) -> str:
    rate = end_offsets(server, "taken", PARTITIONS) * QUOTA / seconds / 1000
    return f"{rate:.0f} kB/s at a quota of {QUOTA // 1000}"


MEMORY_ATTACKS = [
    Attack("unread-topics", _leave_topics_unread, 1, prepare=_create_wide),
    Attack("unread-names", _leave_names_unread, 1, _little_for_requests, keys_mb=REQUESTS_MB, min_mb=8),
    Attack("unread-configs", _leave_configs_unread, 1),
    Attack("client-hellos-129k", partial(_send_hellos, size=129_000), 1, _secured_properties, canary="tls"),
    Attack("client-hellos-60k", partial(_send_hellos, size=60_000), 1, _secured_properties, canary="tls"),
    Attack("before-login-30k", partial(_send_before_login, size=30_000), 1, _login_properties),
    Attack("before-login-500k", partial(_send_before_login, size=500_000), 1, _login_properties),
    Attack("member-ids", _make_member_ids, 4, prepare=load_coordinator),
    Attack("member-ids-of-groups", _make_groups, 4, prepare=load_coordinator),
    Attack(
        "producer-ids",
        _make_producer_ids,
        4,
        prepare=_create_taken,
        keys_mb=UNGRANTED_MB,
        min_mb=6,
        min_answered=1_500,
        max_mb=24,
    ),
    Attack(
        "producer-ids-guessed",
        _guess_producer_ids,
        4,
        _few_producers,
        prepare=_grant_ids,
        keys_mb=PRODUCERS_MB,
        min_mb=1,
        min_answered=500,
        max_mb=10,
    ),
    Attack("reconnecting", _reconnect, 8, prepare=_set_quota, figure=_rate),
]
