"""A search's fields are read within their bounds."""

import pytest

from kafkapy.console.brokers import ClusterError
from kafkapy.console.queries import query_of


def test_an_empty_form_requests_the_last_records() -> None:
    query = query_of({"name": "t"})
    assert (query.begin, query.value, query.limit, query.is_live) == ("last", 50, 100, False)
    assert query_of({"name": "t", "partitions": "0, 2", "from": "offset", "offset": "7"}).partitions == (0, 2)


@pytest.mark.parametrize(
    ("time", "expected"), [("1970-01-01T00:00:01", 1000), ("1970-01-01T01:00+01:00", 0), ("1970-01-02", 86_400_000)]
)
def test_times_are_utc_unless_they_say_otherwise(time, expected) -> None:
    assert query_of({"name": "t", "from": "time", "time": time}).value == expected


def test_a_tail_goes_on_where_it_was() -> None:
    query = query_of({"name": "t", "from": "positions", "at": "0:5,3:9"}, is_live=True)
    assert query.positions == {0: 5, 3: 9}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "x" * 250},
        {"name": "t", "from": "nowhere"},
        {"name": "t", "count": "0"},
        {"name": "t", "count": "9" * 5000},
        {"name": "t", "limit": "501"},
        {"name": "t", "from": "offset", "offset": "-1"},
        {"name": "t", "from": "time", "time": "soon"},
        {"name": "t", "from": "time", "time": "-P" + "9" * 30 + "D"},
        {"name": "t", "partitions": "a"},
        {"name": "t", "from": "positions", "at": "0:x"},
        {"name": "t", "text": "x" * 257},
        {"name": "t", "isolation": "none"},
    ],
)
def test_what_is_out_of_bounds_is_refused(fields) -> None:
    with pytest.raises(ClusterError):
        query_of(fields)
