"""The image's entry point: a server.properties from the environment, a formatted directory, then `kafkapy start`.

As Apache Kafka's own image: KAFKA_<KEY> sets a key ('_' stands for '.', '__' for '_', '___' for '-'), CLUSTER_ID names
the cluster. A server.properties mounted at /mnt/shared/config comes first, the environment is laid over it; where there
is neither, the image's default is used. Unlike Kafka's image, a node without controller.quorum.voters is formatted with
its voters in the log, a formatted directory is taken as it is, and logs lie in the volume unless a key says otherwise.

kafkapy.admin.listener is :9404 unless a key says otherwise. `entrypoint.py health` is the image's health check: it ends
with 0 where /readyz there says that the node is ready, and prints what is missing.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NoReturn

from kafkapy.config.endpoints import host_and_port
from kafkapy.config.properties import format_properties, parse_properties

HOME = Path(os.environ.get("KAFKAPY_HOME", "/opt/kafkapy"))
MOUNTED = Path(os.environ.get("KAFKAPY_MOUNTED_CONFIG", "/mnt/shared/config"))
DATA_DIR = os.environ.get("KAFKAPY_DATA_DIR", "/var/lib/kafkapy/data")
ADMIN_KEY = "kafkapy.admin.listener"
DEFAULT_ADMIN_LISTENER = ":9404"
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
"""What Apache Kafka's image has, too: containers that are told nothing else belong to one cluster."""

NOT_KEYS = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""What Kafka's image reads for the JVM and its logging."""


def key_of(variable: str) -> str:
    """Return the key that a KAFKA_ variable sets: KAFKA_LOG_RETENTION_MS -> log.retention.ms."""
    dotted = variable.removeprefix("KAFKA_").lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def properties_from(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        key_of(name): value
        for name, value in sorted(environment.items())
        if name.startswith("KAFKA_") and name not in NOT_KEYS
    }


def merged_properties(environment: Mapping[str, str], mounted: Path, default: Path) -> dict[str, str]:
    """Return the mounted file with the environment over it, or the default where there is neither."""
    properties = parse_properties(mounted.read_text(encoding="utf-8")) if mounted.exists() else {}
    properties |= properties_from(environment)
    if not properties:
        properties = parse_properties(default.read_text(encoding="utf-8"))
    if "log.dirs" not in properties and "log.dir" not in properties:
        properties["log.dirs"] = DATA_DIR
    if not properties.get(ADMIN_KEY, "").strip():
        properties[ADMIN_KEY] = DEFAULT_ADMIN_LISTENER
    return properties


def format_command(properties: Mapping[str, str], path: Path, cluster_id: str) -> list[str]:
    command = [*KAFKAPY, "storage", "format", "--ignore-formatted", "-t", cluster_id, "-c", str(path)]
    if properties.get("controller.quorum.voters", "").strip():
        return command
    is_controller = "controller" in properties.get("process.roles", "")
    return [*command, "--standalone" if is_controller else "--no-initial-controllers"]


def start_command(environment: Mapping[str, str], path: Path) -> list[str]:
    level = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL", "").strip() or "INFO"
    loggers = [each for each in environment.get("KAFKA_LOG4J_LOGGERS", "").split(",") if each.strip()]
    levels = [part for each in (level, *loggers) for part in ("--log-level", each.strip())]
    return [*KAFKAPY, "start", str(path), *levels]


KAFKAPY = (sys.executable, "-m", "kafkapy")
ANY_HOST = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
HEALTH_TIMEOUT_S = 4
"""More than the admin listener waits for the event loop."""


def admin_address(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of the admin listener as reached from the container itself."""
    host, port = host_and_port(properties[ADMIN_KEY].strip())
    return ANY_HOST.get(host, host), port


def check_health(path: Path) -> int:
    """Return 0 where the node with this server.properties says that it is ready; print what it says."""
    try:
        address = admin_address(parse_properties(path.read_text(encoding="utf-8")))
        connection = HTTPConnection(*address, timeout=HEALTH_TIMEOUT_S)
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        print(response.read().decode(errors="replace"), end="")
    except (OSError, HTTPException) as error:
        print(f"unhealthy: {error}", file=sys.stderr)
        return 1
    return 0 if response.status == HTTPStatus.OK else 1


def main() -> int:
    path = HOME / "config" / "server.properties"
    if sys.argv[1:] == ["health"]:
        return check_health(path)
    default = Path(__file__).with_name("server.properties")
    properties = merged_properties(os.environ, MOUNTED / "server.properties", default)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_properties(properties), encoding="utf-8")
    cluster_id = os.environ.get("CLUSTER_ID") or DEFAULT_CLUSTER_ID
    formatted = subprocess.run(format_command(properties, path, cluster_id), check=False)
    if formatted.returncode:
        return formatted.returncode
    return become(start_command(os.environ, path))


def become(command: list[str]) -> NoReturn:
    """Let the broker take this process's place, and with it the container's signals."""
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
