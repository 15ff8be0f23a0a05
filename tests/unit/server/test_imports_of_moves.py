"""A broker with several log directories imports at its start what a move needs; one with one directory does not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from pathlib import Path
from kafkapy import Broker
from tests.support.wire import WireClient
from tests.support.client_requests import batch_of, create_topic, produce

directories = sys.argv[1:]
with Broker(properties={"log.dirs": ",".join(directories)}) as broker, WireClient(broker.bootstrap_servers) as client:
    is_imported = "kafkapy.replication.log_move" in sys.modules
    create_topic(client, "t")
    produce(client, "t", batch_of(1))
    print(is_imported)
    if is_imported:
        before = set(sys.modules)
        from kafkapy.protocol.messages import alter_replica_log_dirs_request as wire

        (target,) = [path for path in directories if not Path(path, "t-0").exists()]
        moved = wire.AlterReplicaLogDir(target, topics=[wire.AlterReplicaLogDirTopic("t", partitions=[0])])
        client.call(wire.AlterReplicaLogDirsRequest([moved]), 2)
        until = time.monotonic() + 30
        while not Path(target, "t-0").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert Path(target, "t-0").exists()
        print(sorted(name for name in set(sys.modules) - before if name.startswith("kafkapy.")))
"""


@pytest.mark.parametrize(("names", "printed"), [(["a"], ["False"]), (["a", "b"], ["True", "[]"])])
def test_a_move_imports_nothing(tmp_path: Path, names: list[str], printed: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *(str(tmp_path / name) for name in names)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    assert result.stdout.splitlines() == printed
