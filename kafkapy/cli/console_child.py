"""The console as a child process of a broker: `kafkapy start --console`.

The child's standard input is a pipe whose other end only the broker has: it ends with the broker, however that ends.
"""

import contextlib
import logging
import subprocess
import threading
import time
from typing import Final

from kafkapy.child_command import child_command, child_environment
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import SecurityProtocol
from kafkapy.errors import ConfigError

STOP_TIMEOUT_S: Final = 5
"""The console stops within 2 s (console/main.py); afterwards it is killed."""
MAX_RESTARTS: Final = 5
"""A console that ends again and again has a reason that a restart does not mend."""
SERVED_S: Final = 10
"""One that has lived so long has served, and is started again if it fails. Before, it has said what is wrong with its
options or its port, and would say that again."""


class ConsoleChild:
    """Runs `kafkapy console` on 127.0.0.1 from start() to stop(); its output is this process's.

    `command_config`: a client.properties, needed where clients have to log in or use TLS. Raises ConfigError.
    """

    def __init__(self, config: BrokerConfig, port: int, command_config: str | None) -> None:
        if not config.is_broker:
            raise ConfigError("process.roles", "controller", "--console needs a broker")
        listener = config.broker_listeners[0]
        if listener.security_protocol is not SecurityProtocol.PLAINTEXT and command_config is None:
            reason = "clients connect by " + listener.security_protocol + ": --console needs --console-config FILE"
            raise ConfigError("listeners", str(listener), reason)
        self._options = ["--listen", f"127.0.0.1:{port}"]
        if command_config is not None:
            self._options += ["--command-config", command_config]
        metrics = config.node.kafkapy_admin_listener
        if metrics and not metrics.endswith(":0"):
            self._options += ["--metrics", f"http://{_reached_by(metrics)}/metrics"]
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._is_stopping = threading.Event()

    def start(self, address: str) -> None:
        """Start the console of the broker at `address`. Without it the broker serves nevertheless."""
        command = child_command("kafkapy", "console", "--end-with-stdin", "-b", address, *self._options)
        self._process = _started(command)
        self._watcher = threading.Thread(target=self._watch, args=(command,), name="console-child", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _watch(self, command: list[str]) -> None:
        """Start the console again when a signal has ended it, or an error after it has served, MAX_RESTARTS times."""
        logger = logging.getLogger("kafkapy.server")
        for restarts_left in range(MAX_RESTARTS, -1, -1):
            if self._process is None:
                return
            started_s = time.monotonic()
            status = self._process.wait()
            if self._is_stopping.is_set() or not is_failure(status, time.monotonic() - started_s):
                return
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            if not restarts_left:
                logger.error("The console has ended %s again: it is not restarted", how)
                return
            logger.warning("The console has ended %s: starting it again", how)
            self._close_pipe()
            self._process = _started(command)

    def stop(self) -> None:
        """End the child and wait for it, so that its port is free."""
        self._is_stopping.set()
        self._close_pipe()
        if self._watcher is not None:
            self._watcher.join(STOP_TIMEOUT_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def is_failure(status: int, lived_s: float) -> bool:
    """Whether a console that has ended may serve when it is started again."""
    return status < 0 or (status > 0 and lived_s >= SERVED_S)


def _started(command: list[str]) -> "subprocess.Popen[bytes] | None":
    """Return the process; None if it cannot be started."""
    with contextlib.suppress(OSError):
        # Ctrl-C of a terminal reaches the broker alone, which then ends the console.
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=child_environment())
    return None


def _reached_by(listener: str) -> str:
    """Return the address for a client on this machine."""
    host, _, port = listener.rpartition(":")
    return f"127.0.0.1:{port}" if host.strip("[]") in ("", "0.0.0.0", "::") else listener
