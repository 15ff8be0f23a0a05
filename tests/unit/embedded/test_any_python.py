"""A produce and a fetch by a client in pure Python: what CI tries on a Python that most packages have no wheels for."""

import importlib.util
import sys
import warnings

import pytest

from kafkapy import Broker
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.builder import seal
from kafkapy.record.compression import LZ4
from tests.support.client_requests import batch_of, produce
from tests.support.wire import WireClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka import KafkaConsumer, KafkaProducer

HEADER_BYTES = 61
VALUES = [b"first", b"second", b"third"]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "zstd"])
def test_what_a_client_produces_is_fetched(codec: str | None) -> None:
    if codec == "zstd":
        pytest.importorskip("zstandard", reason="kafka-python compresses with it")
    with Broker() as broker:
        broker.create_topics("orders")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec)
        for value in VALUES:
            producer.send("orders", value).get(60)
        producer.close()
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
        )
        assert [next(consumer).value for _ in VALUES] == VALUES
        consumer.close()


def test_an_lz4_batch_is_refused_by_name_where_lz4_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)  # the broker is in this process
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        broker.create_topics("orders")
        refused = produce(client, "orders", lz4_batch(batch_of(3)))
        assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert "pip install lz4" in refused.error_message
        assert produce(client, "orders", batch_of(3)).base_offset == 0, "the partition goes on"


@pytest.mark.skipif(importlib.util.find_spec("lz4") is None, reason="lz4 is not installed")
def test_that_batch_is_taken_where_lz4_is_installed() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        broker.create_topics("orders")
        assert produce(client, "orders", lz4_batch(batch_of(3))).error_code == 0


def lz4_batch(batch: bytes) -> bytes:
    """Return a batch with its records in an lz4 frame, made without the library: one block, as it is."""
    records = batch[HEADER_BYTES:]
    block = (len(records) | 1 << 31).to_bytes(4, "little") + records
    frame = bytes.fromhex("04224d18 60 40 82") + block + bytes(4)  # magic, flags, block size, checksum; end mark
    header = bytearray(batch[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - 12 + len(frame)).to_bytes(4, "big")  # batch length
    header[21:23] = LZ4.to_bytes(2, "big")  # attributes
    return seal(bytes(header), frame)
