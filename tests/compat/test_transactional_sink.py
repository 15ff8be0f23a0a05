"""The transactions of the transactional sink, without Spark: notes and records commit together, by one holder."""

from contextlib import closing

import pytest
from confluent_kafka import KafkaException

from spark_jobs.failpoints import Failpoints, Planted
from spark_jobs.topics import create_topic
from spark_jobs.transactional_sink import FENCINGS, Note, SinkError, TransactionalSink, Transactions, read_claim
from tests.support import market

pytestmark = pytest.mark.compat
NOTE = Note("query", 0, 2)


@pytest.fixture
def sink(bootstrap: str, topic: str, tmp_path) -> TransactionalSink:
    create_topic(bootstrap, topic, 2)
    at_step = Failpoints(str(tmp_path))
    return TransactionalSink(topic, topic, {"bootstrap.servers": bootstrap}, at_step=at_step, timeout_s=60)


def records(first: int) -> list[dict[str, object]]:
    return [
        {"key": b"k%d" % n, "value": b"%d" % n, "headers": [{"key": "h", "value": None}]}
        for n in range(first, first + 3)
    ]


def values(sink: TransactionalSink) -> list[int]:
    return sorted(int(record.value or b"") for record in market.consume(sink.client["bootstrap.servers"], sink.topic))


def test_records_and_note_are_committed_together(sink: TransactionalSink) -> None:
    with closing(Transactions(sink, f"{sink.name}-1")) as transactions:
        assert transactions.note() is None
        transactions.commit(NOTE, iter(records(0)))
        assert transactions.note() == NOTE
    assert values(sink) == [0, 1, 2]
    (header,) = {record.headers for record in market.consume(sink.client["bootstrap.servers"], sink.topic)}
    assert header == (("h", None),)


@pytest.mark.parametrize("step", ["produced-1", "noted-1"])
def test_what_was_not_committed_is_nowhere_and_the_note_is_the_one_before(
    sink: TransactionalSink, tmp_path, step: str
) -> None:
    name = f"{sink.name}-1"
    with closing(Transactions(sink, name)) as transactions:
        transactions.commit(NOTE, records(0))
        (tmp_path / step).write_text("raise")
        with pytest.raises(Planted):
            transactions.commit(Note("query", 1, 2), records(3))
    with closing(Transactions(sink, name)) as transactions:
        assert transactions.note() == NOTE
        transactions.commit(Note("query", 1, 2), records(3))
    assert values(sink) == [0, 1, 2, 3, 4, 5]


def test_a_record_that_is_refused_takes_the_others_with_it(sink: TransactionalSink) -> None:
    with closing(Transactions(sink, f"{sink.name}-1")) as transactions:
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            transactions.commit(NOTE, [*records(0), {"key": b"k", "value": bytes(2 << 20)}])
        transactions.commit(NOTE, records(3))
    assert values(sink) == [3, 4, 5]


def test_who_takes_an_id_fences_its_holder(sink: TransactionalSink) -> None:
    with closing(Transactions(sink, f"{sink.name}-1")) as older:
        older.commit(NOTE, records(0))
        with closing(Transactions(sink, f"{sink.name}-1")) as newer:
            with pytest.raises(KafkaException) as error:
                older.commit(Note("query", 1, 2), records(3))
            assert error.value.args[0].code() in FENCINGS
            newer.commit(Note("query", 1, 2), records(3))
    assert values(sink) == [0, 1, 2, 3, 4, 5]


def test_a_claim_is_what_tasks_read(sink: TransactionalSink) -> None:
    claim = Note("query", 7, 2, "run")
    with closing(Transactions(sink, sink.name)) as transactions:
        transactions.commit(claim)
    assert read_claim(sink) == claim


def test_a_name_without_permission_or_broker_is_one_line(sink: TransactionalSink) -> None:
    with pytest.raises(SinkError, match="transactional id") as error, _nobody(sink).open():
        pass
    assert "\n" not in str(error.value)


def _nobody(sink: TransactionalSink) -> TransactionalSink:
    return TransactionalSink(sink.name, sink.topic, {"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1)
