"""The heap is frozen when much metadata has changed, and only then."""

import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.server.process.heap import (
    CHANGES_PER_FREEZE,
    YOUNG_COLLECTIONS_PER_FULL,
    FreezeAfterLong,
    FrozenMetadata,
    freeze_heap,
)

TOPIC_ID = b"t" * 16
OF_A_START = """
import gc, sys
from kafkapy.__main__ import main
collected = []
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "start" else None)
made_when_ready = []


class Output:
    def write(self, text):
        made_when_ready.append([text])
        return sys.__stdout__.write(text)

    def flush(self):
        sys.__stdout__.flush()


sys.stdout = Output()
sys.argv = ["kafkapy", "start", *sys.argv[1:]]
status = main()
sys.stdout = sys.__stdout__
print(gc.get_freeze_count() > 10_000, collected.count(2), status)
print(any(each is made_when_ready[0] for each in gc.get_objects()))
"""
"""Prints whether the heap was frozen, how many full collections there were, the exit status; then whether what was made
after the start would still be visited by a collection, at the end."""


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def delta_of(partition_count: int) -> MetadataDelta:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord("orders", topic_id=TOPIC_ID))
    for partition_id in range(partition_count):
        delta.replay(PartitionRecord(partition_id, topic_id=TOPIC_ID, replicas=[1], isr=[1]))
    return delta


def test_the_heap_is_frozen_once_enough_has_changed() -> None:
    frozen = FrozenMetadata()
    frozen.on_image(delta_of(CHANGES_PER_FREEZE // 2), EMPTY_IMAGE)
    frozen.on_image(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    before = gc.get_freeze_count()
    frozen.on_image(delta_of(CHANGES_PER_FREEZE // 2), EMPTY_IMAGE)
    assert gc.get_freeze_count() > before
    gc.unfreeze()
    frozen.on_image(delta_of(1), EMPTY_IMAGE)
    assert gc.get_freeze_count() == 0


class Cyclic:
    def __init__(self) -> None:
        self.me = self


def test_garbage_that_is_young_is_not_frozen() -> None:
    frozen = FrozenMetadata()
    gc.collect()
    gc.disable()
    try:
        is_alive = weakref.ref(Cyclic())
        assert is_alive() is not None
        frozen.count_changes(CHANGES_PER_FREEZE)
        assert is_alive() is None
    finally:
        gc.enable()


def test_after_the_start_full_collections_are_rare_but_happen() -> None:
    gc.set_threshold(10, 10, 10)
    freeze_heap()
    gc.collect()  # a full one is also put off while few objects are new
    before = [generation["collections"] for generation in gc.get_stats()]
    kept = []
    while gc.get_stats()[2]["collections"] == before[2]:
        kept.append(Cyclic())
    middle_count = gc.get_stats()[1]["collections"] - before[1]
    assert middle_count >= YOUNG_COLLECTIONS_PER_FULL


@pytest.mark.parametrize("long_ns", [0, 10**15])
def test_what_a_long_full_collection_leaves_is_not_visited_again(long_ns: int) -> None:
    freeze_heap()
    gc.callbacks[:] = [FreezeAfterLong(long_ns).on_collection]
    kept = Cyclic()
    gc.collect()
    is_frozen = not any(each is kept for each in gc.get_objects())
    assert is_frozen == (long_ns == 0)


def test_the_collector_is_watched_once() -> None:
    gc.callbacks[:] = []
    freeze_heap()
    freeze_heap()
    assert len(gc.callbacks) == 1


def test_a_start_makes_no_full_collection_and_a_stop_visits_nothing_that_is_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_A_START, "--port", "0", "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline().startswith("kafkapy ready")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().split() == ["True", "0", "0", "False"]
