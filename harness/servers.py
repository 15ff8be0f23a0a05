"""The two servers of every comparison, started and measured the same way.

Both run one node (broker and controller) on loopback with an empty data directory of their own. What they cost is asked
of the kernel: CPU seconds of the process with all its threads, and of the processes that it started; resident memory
now and at its peak.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

from tools.kafka import JAVA_LIBS, KAFKA_VERSION, PREVIOUS_VERSION, kafka_libs
from tools.maven import require_java

STOCK_JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
"""What Kafka's own start script passes (KAFKA_JVM_PERFORMANCE_OPTS)."""

QUICK_JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
"""What makes a JVM cheap that runs each piece of code a few times only."""

API_VERSIONS_FRAME = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""Size, api key, version, correlation id, no client id."""
CLUSTER_ID = "a2Fma2FweS1iZW5jaG1hcA"


def java(
    main_class: str,
    *arguments: str,
    heap: str = "512m",
    libs: Sequence[Path] = (JAVA_LIBS,),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a class, or a source file, with the jars of these directories."""
    class_path = os.pathsep.join(f"{each}/*" for each in libs)
    return ["java", f"-Xmx{heap}", *options, "-cp", class_path, main_class, *arguments]


def temporary_in(directory: Path) -> str:
    """Return a JVM's option to keep temporary files there: one that is killed leaves 15 MB of RocksDB in /tmp."""
    return f"-Djava.io.tmpdir={directory}"


PORTS = range(10_000, 32_000)
"""Below the ephemeral ports, which outgoing connections take."""

MAX_WORKERS = 8
_last_ports: deque[int] = deque(maxlen=500)


def free_port() -> int:
    """Return a port that is free now; its server binds it later, and leaves it for a while at each restart.

    So no port is given again soon, and each worker of pytest-xdist has ports of its own; KAFKAPY_FIRST_WORKER numbers
    them where a second pytest runs beside.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")  # gw0, gw1 ...
    first = int(os.environ.get("KAFKAPY_FIRST_WORKER", "0"))
    ports = PORTS if worker is None else PORTS[(first + int(worker[2:])) % MAX_WORKERS :: MAX_WORKERS]
    while True:
        port = SystemRandom().choice(ports)
        if port not in _last_ports and _is_free(port):
            _last_ports.append(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@dataclass
class Server:
    """A broker process; a context manager that stops it."""

    name: str
    directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    client_settings: dict[str, str] = field(default_factory=dict)
    """What librdkafka needs to connect, besides the address."""
    java_settings: dict[str, str] = field(default_factory=dict)
    """What Java's clients need."""
    speaks_tls: bool = False
    """Whether the port asks for TLS: then a plain request is answered by closing."""
    working_directory: Path | None = None
    launched_at: float = 0.0
    """By the monotonic clock."""
    format_arguments: tuple[str, ...] = ()
    """What to format the directory with, besides the file: --release-version 3.3-IV3, for example."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Format the directory where that is a step of its own."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self, timeout_s: float = 180) -> Self:
        """Start and wait until the port answers; the log is in DIRECTORY.log."""
        self.launch()
        self.wait_until_ready(timeout_s)
        return self

    def revive(self) -> bool:
        """Start it again if it was started and does not run any more; return False if it never was."""
        if self.launched_at and (self.process is None or self.process.poll() is not None):
            self.start()
        return self.launched_at > 0

    def launch(self) -> None:
        self.launched_at = time.monotonic()
        with open(f"{self.directory}.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.working_directory,
                env=self.environment(),
            )

    def environment(self) -> dict[str, str] | None:
        """Return the process's environment variables; None for those of this process."""
        return None

    def wait_until_ready(self, timeout_s: float) -> None:
        """Return once a request is answered: a port may be bound before anybody serves it."""
        deadline = time.monotonic() + timeout_s
        while not self._answers(timeout_s):
            self._check_alive(deadline)
            time.sleep(0.005)

    def _answers(self, timeout_s: float) -> bool:
        """Whether ApiVersions 0 gets a response."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
                connection.sendall(API_VERSIONS_FRAME)
                return bool(connection.recv(4)) or self.speaks_tls
        except OSError:
            return False

    def _check_alive(self, deadline: float) -> None:
        assert self.process is not None
        if self.process.poll() is not None or time.monotonic() > deadline:
            log = Path(f"{self.directory}.log").read_text(errors="replace")[-2000:]
            self.stop()
            raise RuntimeError(f"{self.name} did not start:\n{log}")

    def stop(self, with_signal: int = signal.SIGTERM, timeout_s: float = 120) -> int:
        """Stop it and return its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(with_signal)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def __enter__(self) -> Self:
        self.prepare()
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def cpu_s(self) -> float:
        """CPU seconds that the process, and those it started, have used so far."""
        return sum(_cpu_s(pid) for pid in self._pids())

    def kernel_s(self) -> float:
        """The kernel's part of `cpu_s`, to a hundredth of a second."""
        return sum(_kernel_s(pid) for pid in self._pids())

    def memory_mb(self, what: str = "VmRSS") -> float:
        """Resident memory in MB; what="VmHWM" for its peak."""
        return sum(_memory_mb(pid, what) for pid in self._pids())

    def forget_peak(self) -> None:
        """Let the peak of the memory begin anew."""
        for pid in self._pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _pids(self) -> list[int]:
        assert self.process is not None
        return _with_children(self.process.pid)


def _with_children(pid: int) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += _with_children(int(child))
    return found


def _cpu_s(pid: int) -> float:
    """Ask the process's CPU clock (clock_getcpuclockid), which counts nanoseconds where /proc counts hundredths."""
    return time.clock_gettime(~pid << 3 | 2)


def _kernel_s(pid: int) -> float:
    """Ask /proc/PID/stat for the fifteenth field, stime; the second one, a name, ends with the last bracket."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[12]) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {what} in /proc/{pid}/status")


class ApacheKafka(Server):
    """Apache Kafka 4.4.0: KRaft, one node, stock JVM settings, a heap of 1 GiB. Formats its directory if need be."""

    version = KAFKA_VERSION

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__("Apache Kafka", directory)
        self.controller_port = free_port()
        self.properties = properties or {}
        self.heap = "1G"
        self.jvm_options = STOCK_JVM

    @property
    def properties_file(self) -> Path:
        return Path(f"{self.directory}.properties")

    def prepare(self) -> None:
        require_java()
        self.write_properties()
        if not (self.directory / "meta.properties").exists():
            arguments = java("kafka.tools.StorageTool", *self.format_command(), libs=[kafka_libs(self.version)])
            subprocess.run(arguments, check=True, capture_output=True)

    def write_properties(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        settings = {key: value for key, value in settings.items() if value}
        self.properties_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def format_command(self) -> list[str]:
        """Return what kafka-storage is to be told."""
        quorum = [] if "controller.quorum.voters" in self.properties else ["--standalone"]
        files = ["-t", CLUSTER_ID, "-c", str(self.properties_file)]
        return ["format", *files, *quorum, "--ignore-formatted", *self.format_arguments]

    def command(self) -> list[str]:
        classpath = ["-cp", f"{kafka_libs(self.version)}/*", "kafka.Kafka", str(self.properties_file)]
        return ["java", f"-Xmx{self.heap}", f"-Xms{self.heap}", *self.jvm_options, *classpath]


class PreviousKafka(ApacheKafka):
    """The release before it, 4.3.1. What it formats, or shares with others, begins at its own levels of features."""

    version = PREVIOUS_VERSION


COMPILED_PYTHON = Path(__file__).parents[1] / ".venv-compiled" / "bin" / "python"
"""Where `make compiled` installs kafkapy."""


class Kafkapy(Server):
    """kafkapy as `kafkapy start` runs it; with process.roles among the properties, as a server.properties has it."""

    name = "kafkapy"
    python = sys.executable

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(type(self).name, directory)
        self.properties = properties or {}

    @property
    def properties_file(self) -> Path:
        return Path(f"{self.directory}.properties")

    def prepare(self) -> None:
        if "process.roles" not in self.properties:
            return
        settings = {**self.properties, "log.dirs": str(self.directory)}
        self.properties_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments = ["storage", "format", "-t", CLUSTER_ID, "-c", str(self.properties_file), "--ignore-formatted"]
        arguments += self.format_arguments
        result = subprocess.run(
            [self.python, "-m", "kafkapy", *arguments],
            capture_output=True,
            text=True,
            cwd=self.working_directory,
            env=self.environment(),
        )
        if result.returncode:
            raise RuntimeError(f"{self.name} does not format its directory:\n{result.stdout}{result.stderr}")

    def command(self) -> list[str]:
        if "process.roles" in self.properties:
            return [self.python, "-m", "kafkapy", "start", str(self.properties_file)]
        settings = [part for key, value in self.properties.items() for part in ("--set", f"{key}={value}")]
        port = [] if "listeners" in self.properties else ["--port", str(self.port)]
        arguments = ["start", *port, "--data-dir", str(self.directory), *settings]
        return [self.python, "-m", "kafkapy", *arguments]


class CompiledKafkapy(Kafkapy):
    """kafkapy with compiled modules, as `make compiled` has installed it.

    Its processes run where no source lies beside: Python would import that first.
    """

    name = "kafkapy compiled"
    python = str(COMPILED_PYTHON)

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(directory, properties)
        self.working_directory = Path("/")

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
