"""The share coordinator's shard against Apache Kafka's (tools/record_share_states.py, which tells the format)."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkapy.config.share import ShareConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import InitialState, StateBatch, StateRead, StateWrite, TopicIdPartition
from kafkapy.share.state_batches import combine, is_combined, merge
from kafkapy.share.state_records import decode_record, encode_record
from kafkapy.share.state_shard import ShareStateDecision, ShareStateShard
from kafkapy.types import Uuid

HERE = Path(__file__).parent
UPDATES_PER_SNAPSHOT, COLD_MS = 3, 5000


def rows(name: str) -> list[tuple[list[str], str]]:
    lines = gzip.decompress((HERE / name).read_bytes()).decode().splitlines()
    return [(asked.split("|"), response) for asked, _, response in (line.partition("\t") for line in lines)]


def batches_of(text: str) -> list[StateBatch]:
    return [StateBatch(*map(int, each.replace("-", ".").split("."))) for each in text.split(",") if each]


def text_of(batches: Sequence[StateBatch]) -> str:
    return ",".join(f"{first}-{last}.{state}.{count}" for first, last, state, count in batches)


def topic_id(topic: str) -> Uuid:
    return int(topic).to_bytes(16, "big")


def partition_count(topic: Uuid) -> int:
    count = int.from_bytes(topic, "big")
    return count if count <= 3 else 0


class World:
    """A shard whose records are replayed at once, as they are read back from the log."""

    def __init__(self) -> None:
        config = ShareConfig(
            share_coordinator_snapshot_update_records_per_snapshot=UPDATES_PER_SNAPSHOT,
            share_coordinator_cold_partition_snapshot_interval_ms=COLD_MS,
        )
        self.shard = ShareStateShard(lambda: config, partition_count)
        self.now_ms = 1000
        self.offset = 0

    def told(self, decision: ShareStateDecision, *fields: str, is_sorted: bool = False) -> str:
        encoded = [encode_record(record, self.now_ms)[1:3] for record in decision.records]
        if is_sorted:
            encoded.sort()
        for key, value in encoded:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, self.offset)
            self.offset += 1
        shown = [f"{(key or b'').hex()}={(value or b'').hex()}" for key, value in encoded]
        return " ".join([self.error_of(decision.response, *fields), *shown])

    def error_of(self, response: Any, *fields: str) -> str:
        if response is None:
            return ""
        shown = [str(int(response.error_code)), response.error_message or ""]
        return "|".join(
            [*shown, *(text_of(v) if isinstance(v := getattr(response, f), list) else str(v) for f in fields)]
        )

    def request(self, asked: list[str]) -> str:
        kind, group, topic, partition = asked[0], asked[1], topic_id(asked[2]), int(asked[3])
        if kind == "W":
            state_epoch, leader_epoch, start, count = map(int, asked[4:8])
            write = StateWrite(topic, partition, state_epoch, leader_epoch, start, count, batches_of(asked[8]))
            return self.told(self.shard.write(group, write, self.now_ms))
        if kind == "I":
            initial = InitialState(topic, partition, *map(int, asked[4:6]))
            return self.told(self.shard.initialize(group, initial, self.now_ms))
        if kind == "R":
            decision = self.shard.read(group, StateRead(topic, partition, int(asked[4])), self.now_ms)
            return self.told(decision, "state_epoch", "start_offset", "state_batches")
        if kind == "S":
            summary = self.shard.summary(group, TopicIdPartition(topic, partition))
            return self.error_of(summary, "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
        assert kind == "D"
        return self.told(self.shard.delete(group, TopicIdPartition(topic, partition)))

    def maintenance(self, asked: list[str]) -> str:
        if asked[0] == "C":
            keys = list(self.shard.states) if self.shard.has_changed_states() else []
            return self.told(self.shard.snapshot_cold(keys, self.now_ms), is_sorted=True)
        if asked[0] == "X":
            return self.told(self.shard.topic_deleted(topic_id(asked[1]), 1000), is_sorted=True)
        if asked[0] == "P":
            return str(self.shard.last_redundant_offset() or "")
        assert asked[0] == "T"
        self.now_ms += int(asked[1])
        return ""


def refusal_of(response: str) -> str:
    """Return an error's code, and its message if that is not the code's general one, which is our own."""
    code, message = response.split("|")[:2]
    return f"{code} {message}" if int(code) == ErrorCode.INVALID_REQUEST else code


def test_requests_are_answered_and_written_as_by_apache_kafka() -> None:
    world = World()
    steps = rows("share_states.txt.gz")
    assert len(steps) > 2000
    for number, (asked, response) in enumerate(steps):
        if asked[0] == "N":
            world = World()
            continue
        told = world.request(asked) if asked[0] in "IWRSD" else world.maintenance(asked)
        if asked[0] in "IWRSD" and not response.startswith("0|"):
            told, response = refusal_of(told), refusal_of(response)
        assert told == response, f"step {number}: {asked}"


def test_state_batches_are_merged_as_by_apache_kafka() -> None:
    merges = rows("share_state_batches.txt.gz")
    assert len(merges) >= 600
    for (start, state, written), response in merges:
        batches = batches_of(state) + batches_of(written)
        assert text_of(combine(batches, int(start))) == response
        combined = combine(batches_of(state), -1)
        assert is_combined(combined)
        assert merge(combined, batches_of(written), int(start)) == combine(batches, int(start))
