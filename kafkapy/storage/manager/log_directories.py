"""The log.dirs of a broker: their health, their identities, and the placement of new replicas.

A directory that cannot be read at the start is offline, like one that fails later; the others stay in service. If
another process has locked one, the broker does not start. Placement: fewest replicas first, without cordoned
directories unless all are cordoned (KIP-1066).
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kafkapy.errors import StorageError
from kafkapy.seams import Disk, Random
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.log_dir import LogDirState
from kafkapy.storage.manager.log_directory import LogDirectory
from kafkapy.types import Uuid

ALL_CORDONED: Final = "*"
"""The only entry of cordoned.log.dirs if all log directories are cordoned."""

logger = logging.getLogger("kafkapy.storage")


class LogDirectories:
    """The directories in the order of log.dirs. `cordoned`: paths that get no new replicas.

    `metadata_only` is metadata.log.dir, if that is not one of log.dirs: it is locked and identified like the others,
    but only `at` returns it.
    """

    def __init__(
        self,
        disk: Disk,
        paths: Sequence[str],
        *,
        random: Random,
        metadata_path: str | None = None,
        on_directory_failed: Callable[[LogDirState], None],
        on_full: Callable[[LogDirState], None] | None = None,
        on_room: Callable[[LogDirState], None] | None = None,
    ) -> None:
        def new_state(path: str) -> LogDirState:
            return LogDirState(path, on_directory_failed, on_full=on_full, on_room=on_room, free_bytes=disk.free_bytes)

        self._by_path = {path: LogDirectory(disk, path, new_state(path)) for path in paths}
        self.metadata_only: LogDirectory | None = None
        if metadata_path is not None and metadata_path not in self._by_path:
            self.metadata_only = LogDirectory(disk, metadata_path, new_state(metadata_path))
        self._random = random
        self.cordoned: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._by_path.values())

    def __getitem__(self, index: int) -> LogDirectory:
        return list(self._by_path.values())[index]

    def at(self, path: str) -> LogDirectory | None:
        """Return the directory at a path."""
        if self.metadata_only is not None and path == self.metadata_only.path:
            return self.metadata_only
        return self._by_path.get(path)

    def set_flush_listener(self, on_flushed: Callable[[int], None]) -> None:
        """Call `on_flushed` with how long each flush of a log took, in microseconds."""
        for directory in self._all:
            directory.state.on_flushed = on_flushed

    @property
    def _all(self) -> list[LogDirectory]:
        return [*self, *([self.metadata_only] if self.metadata_only is not None else [])]

    def with_id(self, directory_id: Uuid) -> LogDirectory | None:
        """Return the online directory with this id, or None."""
        for directory in self._by_path.values():
            if directory.directory_id == directory_id and not directory.state.is_offline:
                return directory
        return None

    @property
    def live(self) -> list[LogDirectory]:
        return [directory for directory in self if not directory.state.is_offline]

    @property
    def offline_paths(self) -> list[str]:
        return [directory.path for directory in self if directory.state.is_offline]

    def lock(self) -> None:
        """Lock all directories and read their identities; assign an id to one without, as Apache Kafka does.

        A directory that fails goes offline. Raises StorageError if another process has locked one, or none is usable.
        """
        try:
            for directory in self._all:
                self._open(directory)
        except BaseException:
            self.unlock()
            raise
        if not self.live:
            self.unlock()
            reasons = "; ".join(f"{each.path}: {each.state.offline_reason}" for each in self)
            raise StorageError(",".join(self._by_path), f"none of the log dirs can be used: {reasons}")

    def _open(self, directory: LogDirectory) -> None:
        try:
            directory.lock()
            meta = directory.read_meta()
            if meta is not None and meta.directory_id is None:
                logger.info("Rewriting %s/meta.properties", directory.path)
                directory.write_meta(replace(meta, directory_id=self._random.uuid()))
        except (OSError, CheckpointError) as error:
            directory.state.go_offline(f"it cannot be used: {error}")

    def unlock(self) -> None:
        for directory in self._all:
            directory.unlock()

    def last_broker_epoch(self) -> int:
        """Return the broker epoch of the last clean stop if all directories agree on it, else -1."""
        epochs = set()
        for directory in self.live:
            try:
                epochs.add(directory.last_broker_epoch())
            except OSError as error:
                directory.state.go_offline(f"reading the clean-shutdown file: {error}")
        if self.offline_paths:
            return -1
        epoch = epochs.pop() if len(epochs) == 1 else None
        return epoch if epoch is not None else -1

    def pop_clean_shutdown(self, path: str) -> bool:
        """Return whether the last stop was clean in `path`; delete the clean-shutdown files of all directories.

        Call it before the quorum writes to its directory, which is before the logs are loaded.
        """
        taken = {}
        for directory in self.live:
            try:
                taken[directory.path] = directory.pop_clean_shutdown()
            except OSError as error:
                directory.state.go_offline(f"reading the clean-shutdown file: {error}")
        return taken.get(path, False)

    def give_back_clean_shutdown(self) -> None:
        """Undo pop_clean_shutdown if the start fails before anything was written: the next start decides alike."""
        for directory in self.live:
            try:
                directory.give_back_clean_shutdown()
            except OSError as error:
                logger.warning(
                    "Could not mark %s as cleanly shut down; the next start recovers its logs: %s",
                    directory.path,
                    error,
                )

    def forget_clean_stop(self, path: str) -> None:
        """Make the next start recover the directory `path`, even if its logs are closed cleanly."""
        directory = self.at(path)
        if directory is not None:
            directory.needs_recovery = True

    def cordon(self, paths: Iterable[str]) -> None:
        """Apply cordoned.log.dirs."""
        paths = frozenset(paths)
        self.cordoned = frozenset(self._by_path) if ALL_CORDONED in paths else paths

    @property
    def cordoned_ids(self) -> list[Uuid]:
        """The ids of the cordoned directories that are online, for the controller."""
        return [each.directory_id for each in self.live if each.path in self.cordoned and each.directory_id is not None]

    def for_new_log(self, counts: Counter[str]) -> list[LogDirectory]:
        """Return the directories for a new replica, best first; counts: the number of replicas by directory path."""
        allowed = [directory for directory in self.live if directory.path not in self.cordoned]
        return sorted(allowed, key=lambda directory: counts[directory.path]) or self.live[:1]
