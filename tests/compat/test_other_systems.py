"""A broker where Linux's own calls are missing, as on macOS: produced to, compacted, killed, recovered.

Nothing here runs macOS. What Python has on Linux alone is taken away from the broker and its helper processes.
"""

import os
import signal
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from tests.compat.test_compaction import KEYS, assert_complete, clean_to, create, produce, read_all, wait_until

pytestmark = [pytest.mark.long, pytest.mark.ours]

WITHOUT_LINUX = """
import errno, os, resource, select, socket, stat, sys

for module, names in {
    os: "RWF_NOWAIT SCHED_IDLE sched_getaffinity sched_setscheduler posix_fadvise posix_fallocate fdatasync splice"
    " copy_file_range memfd_create eventfd pidfd_open",
    resource: "RUSAGE_THREAD",
    select: "epoll",
    socket: "MSG_MORE SO_REUSEPORT TCP_QUICKACK TCP_CORK TCP_USER_TIMEOUT SO_INCOMING_CPU",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

sendfile, setrlimit, getrlimit = os.sendfile, resource.setrlimit, resource.getrlimit


def sendfile_to_sockets(target, *rest):
    if not stat.S_ISSOCK(os.fstat(target).st_mode):
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    return sendfile(target, *rest)


def without_bound(which):
    return getrlimit(which)[0], resource.RLIM_INFINITY


def with_bound(which, limits):
    if limits[0] == resource.RLIM_INFINITY:
        raise ValueError("current limit exceeds maximum limit")
    setrlimit(which, (limits[0], getrlimit(which)[1]))


os.sendfile, resource.getrlimit, resource.setrlimit = sendfile_to_sockets, without_bound, with_bound
print("without Linux", file=sys.stderr, flush=True)
"""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kafkapy:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LINUX)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return Kafkapy(tmp_path / "data", {"log.cleaner.backoff.ms": "200"})


def test_a_broker_does_without_linux(broker: Kafkapy, tmp_path: Path) -> None:
    count = 8 * KEYS
    with broker:
        create(broker.bootstrap, "compacted", delete_retention_ms="600000")
        produce(broker.bootstrap, "compacted", range(count))
        wait_until(lambda: clean_to(broker, "compacted") > 0)
        assert_complete(read_all(broker.bootstrap, "compacted"), count)
        broker.stop(signal.SIGKILL)
        broker.start()
        assert_complete(read_all(broker.bootstrap, "compacted"), count)
        assert broker.stop() == 0
    reported = (tmp_path / "data.log").read_text().count("without Linux")
    assert reported >= 3, "two brokers and a cleaner"
