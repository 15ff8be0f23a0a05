"""Metrics that Apache Kafka does not have: the process, the event loop, the IO pool, garbage collection, free space.

process_* have the names of prometheus_client's collector. There are no series of a JVM.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector

from kafkapy.gauge import Distribution, Gauge, Measured

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.seams import IoPool
    from kafkapy.storage.manager.log_manager import LogManager

OWN: Final = ""
SECONDS: Final = 1e-6
"""Per unit of the histograms, which count microseconds."""
PROCESS_IO: Final = Path("/proc/self/io")


def process_gauges() -> Iterator[Gauge]:
    """Yield what the operating system reports about the process; may be called on any thread."""
    for family in ProcessCollector(registry=None).collect():
        for sample in family.samples:
            yield Gauge(OWN, sample.name, sample.value, is_counter=family.type == "counter")


def disk_io_gauges(server: str) -> Iterator[Gauge]:
    """Yield the bytes that the process has read from and written to disks; nothing if that is unknown."""
    try:
        lines = PROCESS_IO.read_text().splitlines()
    except OSError:
        return
    values = dict(line.split(": ") for line in lines)
    for kind in ("read", "write"):
        yield Gauge(f"kafka.server:type={server}", f"linux-disk-{kind}-bytes", int(values[f"{kind}_bytes"]))


def space_gauges(log_manager: "LogManager") -> Iterator[Gauge]:
    """Yield the free space of each log directory. May wait for the disk: not for the event loop."""
    for directory in log_manager.directories:
        try:
            free_bytes = log_manager.disk.free_bytes(directory.path)
        except OSError:
            continue
        yield Gauge(OWN, "kafkapy_log_directory_usable_bytes", free_bytes, (("path", directory.path),))


def loop_gauges(counts: "NodeCounts", io_pool: "IoPool") -> Iterator[Measured]:
    yield Distribution(OWN, "kafkapy_event_loop_lag_seconds", (), [counts.loop_lag_us.copy()], unit=SECONDS)
    yield Distribution(OWN, "kafkapy_gc_pause_seconds", (), [counts.gc_pauses_us.copy()], unit=SECONDS)
    for name, attribute in (("unfinished_calls", "unfinished_count"), ("threads", "thread_count")):
        value = getattr(io_pool, attribute, None)  # only the pool of threads has them
        if value is not None:
            yield Gauge(OWN, f"kafkapy_io_pool_{name}", value)


def work_gauges(services: "Services") -> Iterator[Gauge]:
    yield Gauge(OWN, "kafkapy_heavy_work_bytes", services.heavy_work.bytes_in_use)
    yield Gauge(OWN, "kafkapy_decoded_request_bytes", services.decoded.bytes_in_use)
    yield Gauge(OWN, "kafkapy_unread_answer_bytes", services.heavy_work.answer_bytes)
    yield Gauge(OWN, "kafkapy_suspended_requests", services.replica_manager.waiting_count)
