"""Metrics that Apache Kafka does not have: the process, the event loop, the IO pool, garbage collection, free space.

process_* have the names and meanings of prometheus_client's collector, which reads the same files of /proc: elsewhere
there are none. There are no series of a JVM.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Distribution, Gauge, Measured

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.seams import IoPool
    from kafkapy.storage.manager.log_manager import LogManager

OWN: Final = ""
SECONDS: Final = 1e-6
"""Per unit of the histograms, which count microseconds."""
PROC: Final = Path("/proc")
PROCESS_IO: Final = Path("/proc/self/io")
UTIME, STIME, START_TIME, VIRTUAL_BYTES, RESIDENT_PAGES = 11, 12, 19, 20, 21
"""Where /proc/self/stat has them, after the process's name in brackets (proc_pid_stat(5)); times are in ticks."""


def process_gauges() -> Iterator[Gauge]:
    """Yield the values that the operating system reports about the process; may be called on any thread."""
    try:
        stat = (PROC / "self/stat").read_text().rpartition(")")[2].split()
        boot_time = next(line for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime "))
        open_files = len(os.listdir(PROC / "self/fd"))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield Gauge(OWN, "process_cpu_seconds_total", (int(stat[UTIME]) + int(stat[STIME])) / ticks, is_counter=True)
    yield Gauge(OWN, "process_start_time_seconds", int(boot_time.split()[1]) + int(stat[START_TIME]) / ticks)
    yield Gauge(OWN, "process_virtual_memory_bytes", int(stat[VIRTUAL_BYTES]))
    yield Gauge(OWN, "process_resident_memory_bytes", int(stat[RESIDENT_PAGES]) * resource.getpagesize())
    yield Gauge(OWN, "process_open_fds", open_files)
    yield Gauge(OWN, "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def disk_io_gauges(server: str) -> Iterator[Gauge]:
    """Yield the bytes that the process has read and written, on disks and in caches; none if that is unknown.

    Apache Kafka 4.4 has these names: bytes of disks, bytes and calls that may have met the page cache alone.
    """
    try:
        lines = PROCESS_IO.read_text().splitlines()
    except OSError:
        return
    values = dict(line.split(": ") for line in lines)
    for kind in ("read_bytes", "write_bytes", "rchar", "wchar", "syscr", "syscw", "cancelled_write_bytes"):
        yield Gauge(f"kafka.server:type={server}", f"linux-disk-{kind.replace('_', '-')}", int(values[kind]))


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
    yield Gauge(OWN, "kafkapy_unread_answer_bytes", services.heavy_work.response_bytes)
    yield Gauge(OWN, "kafkapy_suspended_requests", services.replica_manager.waiting_count)
