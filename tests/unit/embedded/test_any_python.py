"""A produce and a fetch by a client in pure Python: what CI tries on a Python that most packages have no wheels for."""

import importlib.util
import warnings

import pytest

from kafkapy import Broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import UnsupportedCompressionTypeError

VALUES = [b"first", b"second", b"third"]
HAS_LZ4 = importlib.util.find_spec("lz4") is not None


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


@pytest.mark.skipif(HAS_LZ4, reason="lz4 is installed")
def test_lz4_that_is_not_installed_is_refused_by_name() -> None:
    """The client has no lz4 either: its batch is made here, so that only the broker must read it."""
    assert UnsupportedCompressionTypeError.errno == 76
