"""Making a log durable without holding up the event loop: what to sync is collected here, a worker does it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.seams import failpoint
from kafkapy.storage.errors import KAFKA_STORAGE_ERROR
from kafkapy.storage.log_dir import NO_SPACE
from kafkapy.storage.open_files import FileHandle

if TYPE_CHECKING:
    from kafkapy.storage.log import Log


class Flush:
    """A flush of one log up to `end_offset`.

    `run` syncs, on any thread; `others` are calls that it makes behind the files. Then, on the loop's thread,
    `log.complete_flush(flush)` moves the recovery point and lets go of the files, also after a failure. run raises
    StorageError: what was written may be gone, and asking again would not tell, so the directory goes offline. A disk
    without room for the small files that `others` write is no such failure (ApiError KAFKA_STORAGE_ERROR): they are
    written by the next flush.
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
        self.has_no_room = False
        self.directory = log.directory
        self.has_lost_names = False
        """Whether the directory was not there any more under its name: it was renamed meanwhile, with its log."""
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
        """Sync the files, then make the other calls. Blocks. Raises StorageError, ApiError KAFKA_STORAGE_ERROR."""
        doing = f"flush of {self.log.topic_partition}"
        try:
            for file in self._files:
                file.sync()
        except OSError as error:
            raise StorageError(self.log.log_dir.path, f"{doing}: {error}") from error
        failpoint("log.flush.after_files")
        try:
            for call in self.others:
                call()
        except OSError as error:
            self.has_lost_names = isinstance(error, FileNotFoundError)
            if error.errno in NO_SPACE:
                self.has_no_room = True
                raise ApiError(KAFKA_STORAGE_ERROR, f"{doing}: {error}") from error
            raise StorageError(self.log.log_dir.path, f"{doing}: {error}") from error
        self.is_done = True

    def release(self) -> None:
        """Let go of the files."""
        for handle in self._handles:
            handle.unpin(self)
