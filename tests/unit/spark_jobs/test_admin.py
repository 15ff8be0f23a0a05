"""Whether a broker can be reached is found out before a client of the JVM is asked."""

import socket

import pytest

pytest.importorskip("pyspark")

from spark_jobs.admin import require_reachable, with_timeouts
from spark_jobs.errors import JobError

CLOSED = "127.0.0.1:1"


def test_one_of_the_addresses_that_takes_a_connection_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = f"127.0.0.1:{listener.getsockname()[1]}"
        for bootstrap in (here, f"{CLOSED}, {here}", f"PLAINTEXT://{here}", f"a.invalid:9092,{here}"):
            require_reachable(bootstrap, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_ipv6_stands_in_brackets() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        require_reachable(f"[::1]:{listener.getsockname()[1]}", 0)


@pytest.mark.parametrize("bootstrap", [CLOSED, f"{CLOSED},{CLOSED}", "127.0.0.1:99999", "a.invalid:9092"])
def test_where_nobody_listens_is_one_line(bootstrap: str) -> None:
    with pytest.raises(
        JobError, match=rf"^no broker answers at {bootstrap} \(.+\): is it running, is the address right"
    ):
        require_reachable(bootstrap, 0)


def test_what_is_no_address_is_left_to_java() -> None:
    require_reachable("not an address", 0)


@pytest.mark.parametrize(
    ("given", "request_ms", "api_ms"),
    [
        ({}, "30000", "60000"),
        ({"default.api.timeout.ms": "20000"}, "20000", "20000"),
        ({"request.timeout.ms": "90000"}, "90000", "90000"),
        ({"request.timeout.ms": "x", "default.api.timeout.ms": "y"}, "x", "y"),
    ],
)
def test_one_time_out_that_is_given_fits_the_other(given: dict[str, str], request_ms: str, api_ms: str) -> None:
    assert with_timeouts(given) == {"request.timeout.ms": request_ms, "default.api.timeout.ms": api_ms}
