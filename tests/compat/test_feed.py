"""The feed against a broker: what it sends, and that it goes on where it stopped, however it ended."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_jobs import feed
from spark_jobs.errors import JobError
from spark_jobs.generator import Market
from tests.support import market
from tests.support.eventually import eventually

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MARKET = Market(events=3_000, depth_per_trade=0.3, seed=3)


def config(bootstrap: str, topic: str, **more: object) -> feed.FeedConfig:
    topics = {"trades_topic": topic, "depth_topic": topic + "-depth"}
    return feed.FeedConfig(bootstrap_servers=bootstrap, **topics, **{"market": MARKET, "quiet": True, **more})


def sent(bootstrap: str, topic: str) -> list[tuple[str, bytes, bytes, int]]:
    records = market.consume(bootstrap, topic, topic + "-depth")
    return sorted((r.topic, r.key or b"", r.value or b"", r.timestamp_ms) for r in records)


def expected(settings: feed.FeedConfig) -> list[tuple[str, bytes, bytes, int]]:
    found = feed.events(settings)
    return sorted((settings.topic(e.kind), e.key.encode(), e.value, e.arrival_ms) for e in found)


def test_a_feed_sends_every_event_keyed_in_order_and_compressed(bootstrap, topic):
    settings = config(bootstrap, topic)
    assert feed.run(settings) == len(expected(settings))
    assert sent(bootstrap, topic) == expected(settings)
    records = [r for r in market.consume(bootstrap, topic) if r.key == b"BTCUSDT"]
    assert len({record.partition for record in records}) == 1
    numbers = [int(dict(record.headers)["feed"].split(b":")[1]) for record in records]
    assert numbers == sorted(numbers)
    assert {dict(record.headers)["schema"] for record in records} == {b"trade.v1"}


def test_a_feed_that_was_stopped_goes_on(bootstrap, topic, tmp_path):
    state = tmp_path / "feed.state"
    parts = [feed.run(config(bootstrap, topic, state=state, limit=limit)) for limit in (500, 500, 2_000, None)]
    whole = expected(config(bootstrap, topic))
    assert parts == [500, 0, 1_500, len(whole) - 2_000]
    assert sent(bootstrap, topic) == whole


def test_a_feed_killed_on_its_way_goes_on_and_repeats_nothing(bootstrap, topic, tmp_path):
    state, file = tmp_path / "feed.state", tmp_path / "feed.yaml"
    options = {"events": 20_000, "seed": 4, "trades_per_second": 1_000}
    settings = config(bootstrap, topic, state=state, market=Market(**options), speed=1.0)
    file.write_text(yaml.safe_dump({**settings.model_dump(exclude_unset=True, mode="json"), "market": options}))
    command = [sys.executable, "-m", "spark_jobs", "feed", "--config", str(file)]
    for signal_number in (signal.SIGKILL, signal.SIGTERM):
        before = json.loads(state.read_text())["next_event"] if state.exists() else 0
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
            deadline_s = time.monotonic() + 60
            while not state.exists() or json.loads(state.read_text())["next_event"] <= before:
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                assert time.monotonic() < deadline_s
                time.sleep(0.005)
            process.send_signal(signal_number)
    assert process.returncode == 0
    rest = feed.run(settings.model_copy(update={"speed": 0.0}))
    assert 0 < rest < 20_000
    assert sent(bootstrap, topic) == expected(settings)


def test_a_feed_goes_on_beside_records_of_others(bootstrap, topic, tmp_path):
    state = tmp_path / "feed.state"
    ours = config(bootstrap, topic, state=state, market=Market(events=300), limit=100)
    other = config(bootstrap, topic, market=Market(events=50, seed=9))
    feed.run(ours)
    feed.run(other)
    feed.run(ours.model_copy(update={"limit": None}))
    assert len(market.consume(bootstrap, topic)) == len(expected(ours.model_copy(update={"limit": None}))) + 50


def test_a_state_file_that_is_not_this_feeds_is_refused(bootstrap, topic, tmp_path):
    state = tmp_path / "feed.state"
    feed.run(config(bootstrap, topic, state=state, limit=10))
    with pytest.raises(JobError, match="is the state of another feed"):
        feed.run(config(bootstrap, topic, state=state, market=Market(seed=8)))
    state.write_text("{")
    with pytest.raises(JobError, match="is not the state of a feed"):
        feed.run(config(bootstrap, topic, state=state))


def test_a_topic_that_was_made_again_gets_no_feed_from_its_middle(bootstrap, topic, tmp_path):
    state = tmp_path / "feed.state"
    settings = config(bootstrap, topic, state=state, market=Market(events=200), partitions=1)
    feed.run(settings.model_copy(update={"limit": 100}))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    with pytest.raises(JobError, match=f"says that {topic}-0 reached offset .* it ends at 0: the topic was made again"):
        feed.run(settings)
    state.unlink()
    assert feed.run(settings) == len(expected(settings))
    assert len(market.consume(bootstrap, topic)) == sum(event.kind == "trade" for event in feed.events(settings))


def test_a_feed_goes_on_beside_an_open_transaction_of_others(bootstrap, topic, tmp_path):
    """Readers with read_committed do not see the feed's records after it."""
    events = Market(events=200, depth_per_trade=0.3)
    settings = config(bootstrap, topic, state=tmp_path / "feed.state", market=events, partitions=1)
    feed.run(settings.model_copy(update={"limit": 50}))
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(topic, b"open", partition=0)
    assert other.flush(60) == 0
    feed.run(settings.model_copy(update={"limit": 100}))
    feed.run(settings)
    other.abort_transaction(60)
    assert sent(bootstrap, topic) == expected(settings)


def test_an_option_that_the_client_refuses_is_reported(bootstrap, topic):
    with pytest.raises(JobError, match='No such configuration property: "nosuch"'):
        feed.run(config(bootstrap, topic, kafka={"nosuch": "1"}))


def test_a_feed_keeps_the_pace_of_its_events_and_shows_how_far_it_came(bootstrap, topic, capsys):
    """Some 4 s of market at twice its pace: the last event is due after half of the time between first and last."""
    paced = config(bootstrap, topic, market=Market(events=80, seed=2, late=0), speed=2.0, quiet=False)
    arrivals = [event.arrival_ms for event in feed.events(paced)]
    due_s = (arrivals[-1] - arrivals[0]) / 1000 / 2
    started_s = time.monotonic()
    count = feed.run(paced)
    assert time.monotonic() - started_s >= due_s > 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("feeding: ")
    assert lines[-1].startswith(f"ended: {count} events in ")


def test_an_unreachable_broker_is_one_line_and_exit_1(tmp_path):
    command = [sys.executable, "-m", "spark_jobs", "feed", "--set", "bootstrap_servers=127.0.0.1:1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("spark_jobs: no broker answers at 127.0.0.1:1")
    assert "Traceback" not in result.stderr
