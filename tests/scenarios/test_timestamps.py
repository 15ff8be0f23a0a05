"""Records without a timestamp, and with one below 0: what is told of them, what is refused."""

import pytest

from kafkapy.record.compression import GZIP, NONE, SNAPPY
from tests.support.batches import build_batch
from tests.support.client_requests import LATEST, create_topic, list_offset, produce
from tests.support.wire import WireClient

MAX_TIMESTAMP = -3


def batch_at(*timestamps: int, compression: int = NONE) -> bytes:
    return build_batch([(timestamp, None, b"value", ()) for timestamp in timestamps], compression=compression)


@pytest.mark.parametrize(
    ("timestamps", "found"), [((-1,), (0, -1)), ((-1, -1), (0, -1)), ((5, -1), (0, 5)), ((-1, 5), (1, 5))]
)
def test_the_largest_timestamp_may_be_none_at_all(
    client: WireClient, topic: str, timestamps: tuple[int, ...], found: tuple[int, int]
) -> None:
    create_topic(client, topic)
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == -1
    assert produce(client, topic, batch_at(*timestamps)).error_code == 0
    response = list_offset(client, topic, MAX_TIMESTAMP)
    assert (response.error_code, response.offset, response.timestamp) == (0, *found)


@pytest.mark.parametrize("timestamps", [(-2,), (5, -2), (-1000, 5)])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_a_topic_that_compresses_anew_refuses_timestamps_below_none(
    client: WireClient, topic: str, timestamps: tuple[int, ...], time: str
) -> None:
    create_topic(client, topic, compression_type="gzip", message_timestamp_type=time)
    for compression in (NONE, SNAPPY):
        assert produce(client, topic, batch_at(*timestamps, compression=compression)).error_code != 0
    assert list_offset(client, topic, LATEST).offset == 0
    assert produce(client, topic, batch_at(-1)).error_code == 0
    assert produce(client, topic, batch_at(*timestamps, compression=GZIP)).error_code == 0, "it is stored as it comes"
    assert list_offset(client, topic, LATEST).offset == 1 + len(timestamps)
