"""A node of a cluster as a background process, identified by its pid file.

As a pid may be reused by another process, the file also has the process's start time, on systems that provide it
(/proc).
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final, Protocol

from kafkapy.child_command import child_command, child_environment
from kafkapy.server.cluster.plan import ClusterError, NodePlan

POLL_S: Final = 0.02
STOP_TIMEOUT_S: Final = 60.0
LINES_SHOWN: Final = 5
CHANNEL: Final = 3
"""The descriptor of a node's channel in its process."""


class NodeChannels(Protocol):
    """Channels to nodes that only the process that starts them has (embedded/controlled/)."""

    MODULE: str
    """What a node with a channel runs, in place of `kafkapy start`."""

    def open(self, node_id: int) -> int:
        """Return the descriptor of the node's end of a new channel, which the caller closes."""


class NodeProcess:
    """The process of one node, running or not."""

    def __init__(self, data_dir: Path, plan: NodePlan) -> None:
        self.plan = plan
        self.log_dir = data_dir / f"node-{plan.node_id}"
        self.properties_file = data_dir / f"node-{plan.node_id}.properties"
        self.log_file = data_dir / f"node-{plan.node_id}.log"
        self._pid_file = data_dir / f"node-{plan.node_id}.pid"

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""
        try:
            text = self._pid_file.read_text().split()
        except FileNotFoundError:
            return None
        if len(text) != 2:
            return None
        pid = int(text[0])
        _reap(pid)
        return pid if _start_time(pid) == text[1] else None

    def launch(self, channels: NodeChannels | None = None) -> None:
        """Start the process. Without a channel it continues when this one ends. Raises ClusterError if it runs."""
        if self.pid is not None:
            raise ClusterError(f"node {self.plan.node_id} runs already")
        if channels is None:
            self._spawn(child_command("kafkapy", "start", str(self.properties_file)))
            return
        command = child_command(channels.MODULE, str(CHANNEL), str(self.properties_file))
        end = channels.open(self.plan.node_id)
        try:
            self._spawn(command, (os.POSIX_SPAWN_DUP2, end, CHANNEL))
        finally:
            os.close(end)

    def _spawn(self, command: list[str], *file_actions: tuple[int, int, int]) -> None:
        """Start a process with its output in the log file, and write its pid file."""
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *file_actions,
        ]
        pid = os.posix_spawn(command[0], command, child_environment(), file_actions=streams, setsid=True)
        self._pid_file.write_text(f"{pid} {_start_time(pid)}\n")

    def send(self, with_signal: signal.Signals) -> None:
        """Send a signal. Raises ClusterError if the node does not run."""
        pid = self.pid
        if pid is None:
            raise ClusterError(f"node {self.plan.node_id} does not run: `kafkapy cluster start {self.plan.node_id}`")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, with_signal)

    def wait_until_ended(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Return once the process has ended. Raises ClusterError."""
        deadline = time.monotonic() + timeout_s
        while self.pid is not None:
            if time.monotonic() > deadline:
                number = self.plan.node_id
                message = (
                    f"node {number} did not stop within {timeout_s:.0f} s: `kafkapy cluster kill {number}` ends it"
                )
                raise ClusterError(message)
            time.sleep(POLL_S)
        self._pid_file.unlink(missing_ok=True)

    def check_runs(self) -> None:
        """Raise ClusterError with the node's last output line if it has ended."""
        if self.pid is None:
            last = self.last_lines(1)
            reason = last[0].removeprefix("kafkapy: ") if last else "it printed nothing"
            raise ClusterError(f"node {self.plan.node_id} has ended: {reason} (more in {self.log_file})")

    def last_lines(self, count: int = LINES_SHOWN) -> list[str]:
        try:
            return self.log_file.read_text(errors="replace").splitlines()[-count:]
        except FileNotFoundError:
            return []


def _reap(pid: int) -> None:
    """Reap the process if it has ended and is a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _start_time(pid: int) -> str:
    """Return a process's start time as the system reports it; "" if there is no such process, "?" if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "?"
