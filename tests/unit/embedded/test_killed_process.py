"""A process that ends, by SIGKILL too, leaves no node and no directory of its `Broker` and `Cluster`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SERVING = """
import time
from kafkapy import Broker, Cluster
with Broker() as broker, Cluster(1) as cluster:
    cluster.pause(1)
    print(cluster._found.processes[1].pid, flush=True)
    time.sleep(600)
"""
FORKING = """
import os, time
from kafkapy import Broker
with Broker():
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
TIMEOUT_S = 60


@pytest.mark.parametrize("program", [SERVING, FORKING], ids=["paused-node", "forked-child"])
def test_a_killed_process_leaves_nothing(tmp_path: Path, program: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert list(tmp_path.iterdir()) != []
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_S
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def test_an_end_as_usual_leaves_nothing(tmp_path: Path) -> None:
    program = "from kafkapy import Broker\nwith Broker(): pass"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + TIMEOUT_S
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


CHILD_AT_ITS_EXIT = """
import os, sys
from kafkapy import Broker
broker = Broker().__enter__()
child = os.fork()
if child == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
broker.create_topics("orders")
"""
CHILD_THAT_LEAVES_BLOCKS = """
import os, sys
from kafkapy import Broker, Cluster
with Broker(network_faults=True) as broker, Cluster(1, network_faults=True) as cluster:
    broker.create_topics("orders")
    cluster.create_topics("orders")
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    broker.create_topics("invoices")
    cluster.create_topics("invoices")
"""


CHILD_THAT_AWAITS = """
import asyncio, os
from kafkapy import Broker
with Broker() as broker:
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(broker.create_topics_async("orders"))
        except RuntimeError as error:
            os._exit(7 if "not in a forked child" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
CHILD_THAT_ASKS = """
import os, time
from kafkapy.testing import Broker, Cluster

def refusals(broker, cluster):
    for call in (
        lambda: broker.topics["orders"].records(),
        lambda: broker.groups["service"].lag,
        lambda: broker.faults.fail("Produce", "INVALID_RECORD"),
        lambda: broker.restart(),
        lambda: cluster.requests.on() or len(cluster.requests),
        lambda: cluster.faults.fail("Produce", "INVALID_RECORD"),
        lambda: cluster.restart(1),
        lambda: cluster.start(1),
        lambda: cluster.add(),
        lambda: cluster.add_controller(),
    ):
        try:
            call()
        except RuntimeError as error:
            if "not in a forked child" not in str(error):
                yield error
        else:
            yield f"line {call.__code__.co_firstlineno}"

for is_used_before in (False, True):
    with Broker() as broker, Cluster(1) as cluster:
        for each in (broker, cluster):
            each.create_topics("orders")
            if is_used_before:
                each.faults.fail("Fetch", "INVALID_RECORD", may_miss=True)
                each.requests.on()
        began_s = time.monotonic()
        child = os.fork()
        if child == 0:
            accepted = list(refusals(broker, cluster))
            assert accepted == [], accepted
            os._exit(7 if time.monotonic() - began_s < 20 else 8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        for each in (broker, cluster):
            each.topics["orders"].produce([{"id": 1}])
            each.requests.on()
            each.faults.fail("Produce", "INVALID_RECORD", may_miss=True)
"""
PROGRAMS = [CHILD_AT_ITS_EXIT, CHILD_THAT_LEAVES_BLOCKS, CHILD_THAT_AWAITS, CHILD_THAT_ASKS]


@pytest.mark.parametrize("program", PROGRAMS, ids=["exit", "blocks", "awaits", "asks"])
def test_a_forked_child_leaves_all_to_its_parent(tmp_path: Path, program: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=TIMEOUT_S)


KEEPING = """
import sys, time
from kafkapy.testing import Cluster
with Cluster(1, data_dir=sys.argv[1]) as cluster:
    print(cluster._found.processes[1].pid, flush=True)
    time.sleep(600)
"""


def test_a_node_stops_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KEEPING, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)
    assert (tmp_path / "data" / "node-1" / ".kafka_cleanshutdown").exists(), "it stopped in order"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
