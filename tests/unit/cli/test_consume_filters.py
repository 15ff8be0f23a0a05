"""consume: begin and end by time, filters, formats; against a broker of our own."""

import io
import json
import sys
import time
from types import SimpleNamespace

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.consume_span import Span, _wanted
from kafkapy.cli.received import Received, filters_of
from kafkapy.decoders.formats import Decoders
from kafkapy.types import TopicPartition

pytest.importorskip("confluent_kafka")
HOUR_MS = 3_600_000
NOON_MS = 1_768_478_400_000
"""2026-01-15T12:00:00Z."""


@pytest.fixture(scope="module")
def server():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsys, monkeypatch):
    """Run a command against the broker with lines on stdin; return its exit status, stdout and stderr."""

    def run_command(*arguments: object, stdin: bytes = b"") -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        status = main([*map(str, arguments), "-b", server])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


@pytest.fixture
def orders(run) -> str:
    """A topic of two partitions with a record an hour, the first one at noon."""
    run("topics", "create", "orders", "-p", 2, "-c", "retention.ms=-1")
    if "0 B" not in run("topics", "list", "orders").out:
        return "orders"
    rows = [
        {
            "key": f"k{each}",
            "value": {"id": each, "side": "buy" if each % 2 else "sell"},
            "headers": {"source": "web" if each < 2 else "app", "n": str(each)},
            "timestamp_ms": NOON_MS + each * HOUR_MS,
            "partition": each % 2,
        }
        for each in range(6)
    ]
    lines = "\n".join(map(json.dumps, rows))
    assert run("produce", "orders", "--json", stdin=lines.encode()).status == 0
    return "orders"


def ids(done: SimpleNamespace) -> list[int]:
    return sorted(json.loads(line)["id"] for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "2026-01-15T14:00:00Z", "-e"], [2, 3, 4, 5]),
        (["--from", "2026-01-15T14:00:00Z", "--until", "2026-01-15T16:30:00Z"], [2, 3, 4]),
        (["-B", "--until", "2026-01-15T13:00:00Z"], [0]),
        (["-B", "--until", "2026-01-15T11:00:00Z"], []),
        (["-B", "--until", "-1s"], [0, 1, 2, 3, 4, 5]),
        (["--from", "-1h", "-e"], []),
        (["--from", "2026-01-15T14:00:00Z", "-e", "-p", 0], [2, 4]),
        (["-B", "-e", "--key", "k3"], [3]),
        (["-B", "-e", "--grep", "buy"], [1, 3, 5]),
        (["-B", "-e", "--grep", "^k[45]$"], [4, 5]),
        (["-B", "-e", "--header", "source=web"], [0, 1]),
        (["-B", "-e", "--header", "source=web", "-H", "n=1"], [1]),
        (["-B", "-e", "--header", "none"], []),
        (["-B", "-e", "--jsonpath", "$.id >= 4"], [4, 5]),
        (["-B", "-e", "--jsonpath", "$.id >= 2", "--jsonpath", "$.side == buy", "--grep", "5"], [5]),
        (["-B", "-n", 1, "--jsonpath", "$.id == 5"], [5]),
        (["-B", "-e", "--jsonpath", "$.id", "--value-format", "json", "--key", "k0"], [0]),
    ],
)
def test_records_are_chosen(run, orders, options, expected) -> None:
    done = run("consume", orders, *options)
    assert (done.status, done.err, ids(done)) == (0, "", expected)


def test_several_topics_are_read_by_name_or_pattern(run, orders) -> None:
    for name, partitions in (("payments-eu", 1), ("payments-us", 3)):
        run("topics", "create", name, "-p", partitions)
        assert run("produce", name, "-k", "k", stdin=f"of {name}\n".encode()).status == 0

    def read(*arguments: object) -> tuple[int, list[str]]:
        done = run("consume", *arguments, "--format", "%t %v", "--timeout-ms", 20_000)
        return done.status, sorted(done.out.splitlines())

    payments = ["payments-eu of payments-eu", "payments-us of payments-us"]
    assert read("payments-*", "-B", "-e") == (0, payments)
    assert read("payments-us", "payments-eu", "payments-?u", "-B", "-e") == (0, payments)
    assert read("payments-*", orders, "--from", "-1h", "--until", "-0s") == (0, payments)
    assert read("payments-*", "-B", "-e", "-p", 0, "--grep", "eu") == (0, payments[:1])
    assert read("payments-*", "-B", "-g", "several", "-n", 2) == (0, payments)
    for name, reason in (("refunds-*", "no topic matches refunds-*"), ("payments-ue", "Did you mean payments-")):
        refused = run("consume", orders, name, "-B", "-e")
        assert (refused.status, reason in refused.err) == (1, True), refused.err
    lacks = run("consume", "payments-*", "-B", "-e", "-p", 2)
    assert (lacks.status, "payments-eu has no partition 2" in lacks.err) == (1, True)


def test_a_member_of_a_group_prints_also_what_comes_after_the_end_as_that_is_committed() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    later = SimpleNamespace(topic=lambda: "t", partition=lambda: 0, offset=lambda: 5)
    for is_of_group in (False, True):
        span = Span([first, second], ends_at_eof=True, is_of_group=is_of_group)
        span.reached_end(first, 5)
        assert (span.excludes(later), span.is_over) == (not is_of_group, False)


def test_a_partition_that_is_named_twice_is_read_once_and_ends() -> None:
    assert _wanted("orders", [0, 1, 2], [2, 0, 2]) == [0, 2]


def test_a_key_is_found_as_it_was_sent_also_if_it_is_shown_as_other_text() -> None:
    message = SimpleNamespace(topic=lambda: "t", key=lambda: b'{"a":1}')
    (accepts,) = filters_of(key='{"a":1}', grep=None, headers=(), json_paths=())
    assert accepts(Received(message, Decoders("auto", "auto")))


def test_a_time_to_come_ends_at_its_moment(run, orders) -> None:
    """Records of the past are shown, and it waits no longer than until that time."""
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    assert ids(run("consume", orders, "-B", "--until", until)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%t %p %o %k %v %h", 'orders 1 0 k1 {"id": 1, "side": "buy"} source=web,n=1\n'),
        (r"%T\t%d", f"{NOON_MS + HOUR_MS}\t2026-01-15T13:00:00.000Z\n"),
        (r"100%% \\ \q%o", "100% \\ \\q0\n"),
        (r"%k\n%o\n", "k1\n0\n"),  # kcat's users end it so
        (r"%k\\n", "k1\\n\n"),
    ],
)
def test_records_are_printed_by_a_pattern(run, orders, pattern, expected) -> None:
    assert run("consume", orders, "-B", "-e", "-p", 1, "-n", 1, "--format", pattern).out == expected


def test_a_value_that_is_no_json_meets_no_path(run) -> None:
    run("topics", "create", "mixed", "-p", 1)
    run("produce", "mixed", stdin=b"not json\n[1, 2]\n\xff\n")
    assert run("consume", "mixed", "-B", "-e", "--jsonpath", "$[1] == 2").out == "[1, 2]\n"
    assert run("consume", "mixed", "-B", "-e", "--grep", "json").out == "not json\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "soon"], "--from: 'soon' is not a time"),
        (["--until", "1h"], "--until: '1h' is not a time"),
        (["--from", "-1h", "-B"], "--from-beginning, --offset and --from say where to begin"),
        (["--from", "-1h", "-g", "g"], "no --from, no --until"),
        (["--format", "%x"], "--format: %x is none of %t, %p"),
        (["--format", "50%"], "--format: it ends with %"),
        (["--format", "%v", "--json"], "--json, --format and --key-separator say how to print"),
        (["--grep", "("], "--grep '(' is no regular expression"),
        (["--jsonpath", "id"], "--jsonpath: 'id' is no JSON path"),
    ],
)
def test_options_that_cannot_be_used_are_named(run, options, message) -> None:
    done = run("consume", "orders", *options)
    assert (done.status, message in done.err) == (2, True), done.err
