"""Temporary directories that go with the process, also if it is killed with SIGKILL.

All of a process are in one directory, which it removes at its exit. A shell, which reads a pipe whose other end only
this process has, waits for the end of the process, whatever that is. Then it kills the nodes of clusters that still run
there (by their pid files) and removes the directory. The shell is no child of this process and in no process group of
it, takes less than 1 MB, and starts with the first directory.
"""

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from typing import Final

PREFIX: Final = "kafkapy-"
WATCH_END: Final = """
trap '' INT TERM HUP
(
  while read -r line; do :; done
  for file in "$0"/*/node-*.pid; do
    [ -f "$file" ] || continue
    read -r pid start < "$file"
    read -r stat < "/proc/$pid/stat" || continue
    set -- ${stat##*) }
    if [ "${20}" = "$start" ]; then kill -KILL "$pid"; fi
  done
  tries=0
  until rm -rf "$0" || [ "$tries" -ge 100 ]; do tries=$((tries + 1)); sleep 0.1; done
) <&3 3<&- >/dev/null 2>&1 &
"""
"""The start time of a process is the 20th word behind its name in /proc/PID/stat, as in server/cluster/processes.py."""
PIPE: Final = 3
"""The descriptor of the pipe in the shell: the input of a command in the background is /dev/null otherwise."""
SHELL: Final = "/bin/sh"
MAX_TRIES: Final = 100
"""Attempts of a removal, while a worker of a broker that was never stopped still writes."""

_root: str | None = None
_pipe_end = -1


class TemporaryDirectory:
    """A new directory: removed by its owner's `cleanup`, else at the end of the process. Raises OSError.

    Unlike one of `tempfile`, it is not removed when a forked child ends.
    """

    def __init__(self, prefix: str = PREFIX) -> None:
        self.name = lasting_directory(prefix)

    def cleanup(self) -> None:
        """Remove the directory. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.name)


def lasting_directory(prefix: str = PREFIX) -> str:
    """Return a new directory that is removed at the end of the process. Raises OSError."""
    return tempfile.mkdtemp(prefix=prefix, dir=_process_directory())


def _process_directory() -> str:
    """Return the directory of this process. Without a shell it is removed only by an end that is not a kill."""
    global _root, _pipe_end
    if _root is None or not os.path.isdir(_root):
        if _pipe_end >= 0:
            os.close(_pipe_end)  # its shell removes nothing more
        _root, _pipe_end = tempfile.mkdtemp(prefix=PREFIX), -1
        if os.path.exists(SHELL):
            _pipe_end = _start_watch(_root)
        atexit.register(_remove, _root, os.getpid())
    return _root


def _remove(directory: str, pid: int) -> None:
    """Remove the directory while this process still runs, so that it is gone when the process has ended."""
    for _ in range(MAX_TRIES):
        if os.getpid() != pid or not os.path.isdir(directory):  # a forked child removes nothing of its parent
            return
        shutil.rmtree(directory, ignore_errors=True)
        if os.path.isdir(directory):
            time.sleep(0.01)


def _start_watch(directory: str) -> int:
    """Start the shell; return this process's end of the pipe, which nobody closes: its end is the process's."""
    read_end, write_end = os.pipe()
    try:
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, read_end, PIPE),
        ]
        command = [SHELL, "-c", WATCH_END, directory]
        # setsid: a Ctrl-C in the terminal is for this process
        pid = os.posix_spawn(SHELL, command, {"PATH": os.defpath}, file_actions=streams, setsid=True)
        with contextlib.suppress(ChildProcessError):  # a program that ignores SIGCHLD
            os.waitpid(pid, 0)  # it ends at once: what waits is its child
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return write_end


def _forget_in_child() -> None:
    """Close a forked child's copy of the pipe: the shell would wait for the child, too."""
    global _root, _pipe_end
    _root = None
    if _pipe_end >= 0:
        os.close(_pipe_end)
        _pipe_end = -1


os.register_at_fork(after_in_child=_forget_in_child)
