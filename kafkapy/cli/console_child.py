"""The console as a child process of a broker: `kafkapy start --console`.

The child's standard input is a pipe whose other end only the broker has: it ends with the broker, however that ends.
"""

import contextlib
import subprocess
from typing import Final

from kafkapy.child_command import child_command, child_environment
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import SecurityProtocol
from kafkapy.errors import ConfigError

STOP_TIMEOUT_S: Final = 5


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

    def start(self, address: str) -> None:
        """Start the console of the broker at `address`. Without it the broker serves nevertheless."""
        command = child_command("kafkapy", "console", "--end-with-stdin", "-b", address, *self._options)
        with contextlib.suppress(OSError):
            # Ctrl-C of a terminal reaches the broker alone, which then ends the console.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, start_new_session=True, env=child_environment()
            )

    def stop(self) -> None:
        """End the child and wait for it, so that its port is free."""
        if self._process is None:
            return
        assert self._process.stdin is not None, "made with a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _reached_by(listener: str) -> str:
    """Return the address for a client on this machine."""
    host, _, port = listener.rpartition(":")
    return f"127.0.0.1:{port}" if host.strip("[]") in ("", "0.0.0.0", "::") else listener
