"""The end of a clean stop, in steps: closes the logs, then writes checkpoints and the clean-shutdown files.

    for step in closing_steps(manager, broker_epoch):
        if step is not None:
            step.run()  # it blocks: a driver on an event loop has a worker call it

100,000 logs in one piece would hold the loop for more than a second. The node's own controller has ended by then, but
the listener of metrics and health, and the other nodes of a cluster in one process, go on. A directory that is offline,
fails meanwhile, or was never loaded gets no clean-shutdown file.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kafkapy.errors import ApiError, StorageError, described

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.checkpoints import LogCheckpoints
    from kafkapy.storage.manager.log_directories import LogDirectories
    from kafkapy.storage.manager.log_directory import LogDirectory
    from kafkapy.storage.manager.pending_logs import PendingLogDeletions

LOGS_PER_STEP: Final = 64
"""Logs closed in one step, three files each: one or two milliseconds."""

logger = logging.getLogger("kafkapy.storage")


class Closable(Protocol):
    """What is closed of a LogManager, which imports this module."""

    directories: "LogDirectories"
    checkpoints: "LogCheckpoints"
    pending_log_deletions: "PendingLogDeletions"

    @property
    def is_abandoned(self) -> bool: ...

    def all_logs(self) -> "list[Log]": ...

    def logs_with_files(self) -> "list[Log]": ...


class BlockingStep:
    """A call that waits for the disk. `run` may be called on any thread, and raises nothing: the next step does."""

    __slots__ = ("_call", "_failure")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raise what `run` failed with."""
        if self._failure is not None:
            raise self._failure


ClosingSteps: TypeAlias = Iterator[BlockingStep | None]


def closing_steps(manager: Closable, broker_epoch: int) -> ClosingSteps:
    """Make all logs durable, close them, write checkpoints and clean-shutdown files, release the locks."""
    for directory in manager.directories:
        if directory.is_loaded and not directory.state.is_offline and not manager.is_abandoned:
            try:
                yield from _close_directory(manager, directory, broker_epoch)
            except (OSError, StorageError, ApiError) as error:
                directory.state.go_offline(f"closing: {error}")
            except Exception as error:  # a bug takes only this directory offline
                logger.exception("Failed to close log directory %s", directory.path)
                directory.state.go_offline(f"closing: {described(error)}")
    yield from _in_slices(manager.logs_with_files(), lambda log: log.local_log.close_files())
    manager.pending_log_deletions.close()
    manager.directories.unlock()


def _close_directory(manager: Closable, directory: "LogDirectory", broker_epoch: int) -> ClosingSteps:
    yield from _in_slices(manager.all_logs(), lambda log: log.close() if log.log_dir is directory.state else None)
    for writes in manager.checkpoints.all_at_the_end():
        if not writes:
            yield None  # some of the offsets are collected
        for write in writes:
            if write.directory is directory:
                yield from _blocking(write.run)
            else:
                write.directory.on_not_written(write.name, sequence=write.sequence)
    yield from _blocking(directory.sync_names)  # of new logs: a closing flush leaves them to this
    directory.state.check_online()  # it may have failed while others ran
    yield from _blocking(lambda: directory.write_clean_shutdown(broker_epoch))


def _in_slices(logs: "list[Log]", close: "Callable[[Log], None]") -> ClosingSteps:
    for count, log in enumerate(logs, 1):
        close(log)
        if count % LOGS_PER_STEP == 0:
            yield None


def _blocking(call: Callable[[], None]) -> ClosingSteps:
    step = BlockingStep(call)
    yield step
    step.check()
