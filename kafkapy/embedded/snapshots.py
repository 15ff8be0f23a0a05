"""Snapshots of a broker's data: topics that a suite fills once, and each test has for itself.

A snapshot is a log directory after a clean stop, as Apache Kafka opens it, beside a file that says who made it:

    PATH/data/             the log directory
    PATH/snapshot.json     {"format": 1, "kafkapy": "0.2.0"}

A broker that starts from it gets a directory of its own. Where the file system can, files share their blocks until one
is written (copy on write). Else the files of active segments are copied, and all others linked: a broker never
writes to these, but replaces them.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Final

from kafkapy.errors import KafkapyError
from kafkapy.storage.manager.space_reserve import RESERVE_FILE
from kafkapy.version import __version__

FORMAT: Final = 1
DATA: Final = "data"
FACTS: Final = "snapshot.json"
LEFT_OUT: Final = (".lock", RESERVE_FILE)
"""Each broker has its own: the lock, and what gives way when the disk is full."""
LOG_SUFFIX: Final = ".log"
APPENDED: Final = (LOG_SUFFIX, ".index", ".timeindex", ".txnindex")
"""The files of the active segment, which grow. All others are written once, or replaced as a whole."""
SMALL_BYTES: Final = 65_536
"""What is read and written by one call."""
FICLONE: Final = 0x40049409
"""Linux's ioctl that makes a file share the blocks of another one."""
NOT_CLONED: Final = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS)


class SnapshotError(KafkapyError, ValueError):
    """A directory that is no snapshot, or one of a newer version."""


class Snapshot:
    """A snapshot in a directory: made by `Broker.snapshot`, for `Broker(snapshot=...)`."""

    def __init__(self, path: str | Path) -> None:
        """Raises SnapshotError."""
        self.path = Path(path).absolute()
        try:
            facts = json.loads((self.path / FACTS).read_text())
            found, made_by = int(facts["format"]), str(facts["kafkapy"])
        except FileNotFoundError:
            raise SnapshotError(f"{self.path} is no snapshot: broker.snapshot(path) makes one") from None
        except (ValueError, LookupError, TypeError) as error:
            raise SnapshotError(f"{self.path / FACTS} cannot be read ({error}): make the snapshot again") from error
        if found > FORMAT:
            what = f"it has the format {found}, this is kafkapy {__version__}, which reads {FORMAT}"
            raise SnapshotError(f"{self.path} is a snapshot of kafkapy {made_by}: {what}")

    @property
    def data_dir(self) -> Path:
        """The log directory, as Apache Kafka opens it; a broker that runs on it changes it."""
        return self.path / DATA

    def __repr__(self) -> str:
        return f"Snapshot({str(self.path)!r})"


def make_snapshot(data_dir: Path, path: Path) -> Snapshot:
    """Copy a log directory that no broker uses. Raises SnapshotError if the path is taken, OSError."""
    _check_apart(data_dir, path)
    if path.exists() and any(path.iterdir()):
        raise SnapshotError(f"{path} is not empty: name another directory, or remove it")
    path.mkdir(parents=True, exist_ok=True)
    clone_directory(data_dir, path / DATA)
    (path / FACTS).write_text(json.dumps({"format": FORMAT, "kafkapy": __version__}) + "\n")
    return Snapshot(path)


def restore_snapshot(snapshot: Snapshot, data_dir: Path) -> None:
    """Give a broker that does not run a directory with the data. Raises SnapshotError if it has some, OSError."""
    _check_apart(snapshot.path, data_dir)
    if data_dir.exists() and any(data_dir.iterdir()):
        raise SnapshotError(f"{data_dir} has data already: name an empty data_dir for {snapshot.path}, or none")
    clone_directory(snapshot.data_dir, data_dir)


def _check_apart(source: Path, target: Path) -> None:
    """Raise SnapshotError if the target is within the source, which would be copied into itself without end."""
    if target.resolve().is_relative_to(source.resolve()):
        raise SnapshotError(f"{target} is within {source}: name a directory outside")


def clone_directory(source: Path, target: Path) -> None:
    """Copy a log directory with its partitions, sharing what is shared safely. Raises OSError."""
    target.mkdir(parents=True, exist_ok=True)
    _clone_files(str(source), str(target), can_clone=_can_clone(source, target))


def _clone_files(source: str, target: str, *, can_clone: bool) -> None:
    names = [name for name in os.listdir(source) if name not in LEFT_OUT]
    active = max((name for name in names if name.endswith(LOG_SUFFIX)), default=LOG_SUFFIX).removesuffix(LOG_SUFFIX)
    for name in names:
        source_path, target_path = f"{source}/{name}", f"{target}/{name}"
        if os.path.isdir(source_path):
            os.mkdir(target_path)
            _clone_files(source_path, target_path, can_clone=can_clone)
        elif can_clone:
            _clone(source_path, target_path)
        elif name.endswith(APPENDED) and name.startswith(active):
            _copy(source_path, target_path)
        else:
            _link(source_path, target_path)


def _can_clone(source: Path, target: Path) -> bool:
    """Return whether the file system shares blocks of files of these directories; tried with one of them."""
    found = next((path for path in source.iterdir() if path.is_file() and path.name not in LEFT_OUT), None)
    if found is None:
        return False
    trial = os.path.join(target, ".clone")
    try:
        _clone(str(found), trial)
    except OSError as error:
        if error.errno not in NOT_CLONED:
            raise
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(trial)
    return True


def _clone(source: str, target: str) -> None:
    with open(source, "rb") as source_file, open(target, "wb") as target_file:
        fcntl.ioctl(target_file.fileno(), FICLONE, source_file.fileno())
    shutil.copystat(source, target)


def _copy(source: str, target: str) -> None:
    """Copy a file, and of a log the time of its last change. (shutil takes four times as long for a small file.)"""
    size = os.stat(source).st_size
    if size > SMALL_BYTES:
        shutil.copyfile(source, target)
    else:
        with open(source, "rb", buffering=0) as source_file, open(target, "xb", buffering=0) as target_file:
            if size:
                target_file.write(source_file.read(size))
    if source.endswith(LOG_SUFFIX):
        shutil.copystat(source, target)


def _link(source: str, target: str) -> None:
    """Link a file, or copy it if it is on another file system."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        _copy(source, target)
