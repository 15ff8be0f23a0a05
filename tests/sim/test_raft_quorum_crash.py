"""The metadata quorum is killed at every change that it makes to its disk, under four ideas of what a disk keeps.

What was told as committed is there again after the start; nothing that was never appended is; the epoch only rises.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.runtime.quorum.quorum import Quorum
from tests.simulator.crash_enumeration import SOAK_FACTOR, Outcomes, Recorder, crashes
from tests.simulator.disk import SimCrash, SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop, run
from tests.support.quorums import DIRECTORY, ValueList, format_standalone, new_quorum

CONFIG = QuorumConfig(
    internal_metadata_log_segment_bytes=600,
    metadata_log_max_record_bytes_between_snapshots=400,
    metadata_max_retention_bytes=1200,
    internal_metadata_delete_delay_millis=0,
)
T = TypeVar("T")
KINDS = ("quorum-state", ".checkpoint", ".log", ".index", ".timeindex", ".snapshot", "leader-epoch")
STRIDE = 4 if SOAK_FACTOR == 1 else 1


@dataclass
class Model:
    """Every value that was ever appended, in order, and how many were told as committed; the epochs that were led."""

    appended: list[bytes] = field(default_factory=list)
    committed_count: int = 0
    epochs: list[int] = field(default_factory=list)
    was_whole: bool | None = None
    """Whether the first start after the crash found all that was appended."""

    def copy(self) -> "Model":
        return Model(list(self.appended), self.committed_count, list(self.epochs))


class CrashablePool(SimIoPool):
    """A crash in a worker is the end of the process; what still waits for the call must not wait for ever."""

    def submit(self, call: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]) -> None:
        def crashable() -> T:
            try:
                return call()
            except SimCrash as crash:
                raise OSError("the process died") from crash

        super().submit(crashable, on_done)


class Script(ValueList):
    """One life of a quorum: it appends batches, waits now and then, closes."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    async def live(self, loop: SimLoop, disk: SimDisk, batch_count: int) -> None:
        quorum = new_quorum(loop, disk, listener=self, config=CONFIG, io_pool=CrashablePool(loop))
        await quorum.start()
        self.begin(quorum)
        for number in range(batch_count):
            values = [
                b"%05d-%d" % (len(self.model.appended) + i, quorum.leader_epoch) * 3 for i in range(1 + number % 4)
            ]
            self.model.appended += values
            offset = quorum.append(values, quorum.leader_epoch)
            if number % 3 == 0:
                await quorum.wait_until(lambda end=offset: quorum.high_watermark > end)  # type: ignore[misc]
                self.model.committed_count = len(self.values)
        await quorum.close()

    def begin(self, quorum: Quorum) -> None:
        """Check what recovery brought: a prefix of what was appended, all that was committed in it."""
        model = self.model
        assert quorum.leader_epoch > max(model.epochs, default=0)
        model.epochs.append(quorum.leader_epoch)
        assert self.values == model.appended[: len(self.values)]
        assert len(self.values) >= model.committed_count
        if model.was_whole is None:
            model.was_whole = len(self.values) == len(model.appended)
        del model.appended[len(self.values) :]
        model.committed_count = len(self.values)

    def on_commit(self, batches: list) -> None:  # type: ignore[type-arg]
        super().on_commit(batches)
        if self.model.epochs and self.model.epochs[-1] == self.last_epoch:
            self.model.committed_count = len(self.values)


def one_life(disk: SimDisk, model: Model, batch_count: int) -> bool:
    """Live until the end or the crash; return whether it came to its end."""

    async def main(loop: SimLoop) -> bool:
        crashed = loop.create_future()

        def on_exception(_: object, context: dict[str, object]) -> None:
            if isinstance(context.get("exception"), SimCrash) and not crashed.done():
                crashed.set_result(None)

        loop.set_exception_handler(on_exception)
        life = loop.create_task(Script(model).live(loop, disk, batch_count))
        await asyncio.wait([life, crashed], return_when=asyncio.FIRST_COMPLETED)
        if not life.done():
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            return False
        error = life.exception()
        if error is not None and disk.crash_after is None:
            raise error
        return error is None

    return run(main)


def formatted(is_standalone: bool) -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    if is_standalone:
        format_standalone(disk)
    else:
        state = b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"currentVoters":[{"voterId":1}],"data_version":0}'
        disk.write_file_atomically(f"{DIRECTORY}/quorum-state", state)
        disk.sync_all()
    disk.changes = 0
    return disk


@pytest.mark.parametrize("is_standalone", [True, False], ids=["standalone", "static voters"])
def test_committed_metadata_survives_a_crash_at_any_change(is_standalone: bool) -> None:
    disk, model = formatted(is_standalone), Model()
    recorder = Recorder(disk, model.copy)
    assert one_life(disk, model, 14)
    moments = recorder.finish()
    assert len(moments) > 100
    assert not disk.exists(f"{DIRECTORY}/{0:020d}.log"), "the script trims the log behind a snapshot"
    outcomes = Outcomes()
    for crash in crashes(moments, stride=STRIDE):
        survivor = crash.promise.copy()
        crash.moment.doing = what(crash.moment.path)
        assert one_life(crash.disk, survivor, 5), str(crash)
        outcomes.add(crash, "whole" if survivor.was_whole else "tail lost")
        crash.disk.crash("all")
        assert one_life(crash.disk, survivor, 1), str(crash)
    print(f"\n{outcomes.table(('whole', 'tail lost'))}")
    assert outcomes.recoveries > 100


def what(path: str) -> str:
    """Name the kind of file that a change is about."""
    name = path.rpartition("/")[2]
    return next((kind for kind in KINDS if kind in name), "directory")
