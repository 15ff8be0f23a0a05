"""Making a log durable without holding up the event loop: what to sync is collected here, a worker does it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import StorageError
from kafkapy.storage.open_files import FileHandle

if TYPE_CHECKING:
    from kafkapy.storage.log import Log


class Flush:
    """A flush of one log up to `end_offset`.

    `run` syncs, on any thread; `others` are calls that it makes behind the files. Then, on the loop's thread,
    `log.complete_flush(flush)` moves the recovery point and lets go of the files, also after a failure. run raises
    StorageError: what was written may be gone, and asking again would not tell, so the directory goes offline.
    """

    def __init__(
        self,
        log: "Log",
        end_offset: int,
        generation: int,
        handles: list[FileHandle],
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        self.generation = generation
        self.is_done = False
        self._handles = handles
        self.others: list[Callable[[], None]] = []
        for handle in handles:
            handle.pin(self)  # before any is opened: opening one may close another
        try:
            self._files = [handle.file for handle in handles]
        except OSError:
            self.release()
            raise

    def run(self) -> None:
        """Sync the files. Blocks. Raises StorageError."""
        try:
            for file in self._files:
                file.sync()
            for call in self.others:
                call()
        except OSError as error:
            raise StorageError(self.log.log_dir.path, f"flush of {self.log.topic_partition}: {error}") from error
        self.is_done = True

    def release(self) -> None:
        """Let go of the files."""
        for handle in self._handles:
            handle.unpin(self)
