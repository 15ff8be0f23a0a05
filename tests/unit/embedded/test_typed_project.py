"""`kafkapy.testing` in a project of a user's: mypy --strict and pyright accept what is right, and name what is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """
from kafkapy.testing import (
    Broker,
    Cluster,
    Group,
    Member,
    NewKafkaBroker,
    NotObserved,
    Record,
    Request,
    TopicPartition,
)


def test_arguments(new_kafka_broker: NewKafkaBroker, own_kafka_cluster: Cluster) -> None:
    broker: Broker = new_kafka_broker("data", properties={"num.partitions": 3}, users={"alice": "secret"}, tls=True)
    config: dict[str, str] = broker.client_config("alice", mechanism="SCRAM-SHA-256")
    own_kafka_cluster.create_topics("orders", replicas=2, configs={"retention.ms": 1000})
    leader: int = own_kafka_cluster.leader_of("orders", 0)
    own_kafka_cluster.restart(leader)
    own_kafka_cluster.wait_in_sync("orders", timeout_s=30)
    print(config)


def test_faults_time_and_snapshots(new_kafka_broker: NewKafkaBroker) -> None:
    broker = new_kafka_broker(clock="virtual", disk_faults=True, network_faults=True)
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders-*", times=2, may_miss=True)
    with broker.faults.paused(fault.probability(0.5, seed=7)):
        broker.clock.advance("7d")
    hits: list[str] = [f"{hit.api} {hit.version}" for hit in broker.faults.log]
    broker.network.delay(ms=10)
    new_kafka_broker(snapshot=broker.snapshot())
    print(hits, broker.faults.expire_member("g", client_id="*"))


def test_what_happened(own_kafka_cluster: Cluster, new_kafka_broker: NewKafkaBroker) -> None:
    broker = new_kafka_broker()
    broker.requests.on(most=100)
    count: int = broker.topics["orders"].produce([{"id": 1}], key=lambda row: row["id"], timestamp=None)
    records: list[Record] = broker.topics["orders"].wait_for(count, where=lambda each: each.key == "1", timeout_s=5)
    broker.topics["orders"].decoded(value="json").assert_delivered_once([1], by=lambda each: each.value["id"])
    last: Record = broker.topics["orders"].last_by_key()["1"]
    group: Group = own_kafka_cluster.groups["service"]
    members: list[Member] = group.wait_for_members(2, timeout_s=5)
    lags: dict[TopicPartition, int] = group.lags
    requests: list[Request] = broker.requests.matching("Produce", topic="orders")
    print(records, last.headers, members, lags, group.lag, [request.errors for request in requests])
    try:
        group.wait_for_lag(0)
    except NotObserved as error:
        print(error)


async def test_async() -> None:
    async with Cluster(3, network_faults=True, users={"alice": "secret"}) as cluster, Broker(port=0) as broker:
        cluster.client_network.delay(1, ms=10)
        print(cluster.client_config("alice"), broker.bootstrap_servers)
"""
WRONG = {
    "new_kafka_broker(prot=1)": "prot",
    "Broker(clok='virtual')": "clok",
    "Broker(port='9092')": "port",
    "Cluster(3, tls='yes')": "tls",
    "cluster.restart('1')": "int",
    "cluster.client_network.cut('1')": "int",
    "Broker().topics['a'].wait_for('3')": "int",
    "Broker().groups['a'].wait_for_lag(0, timeout=1)": "timeout",
    "Broker().faults.delay('Fetch', sm=1, ms=1)": "sm",
}
HEAD = """
from kafkapy.testing import Broker, Cluster, NewKafkaBroker


def test_wrong(new_kafka_broker: NewKafkaBroker, cluster: Cluster) -> None:
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_right.py").write_text(RIGHT)
    (tmp_path / "test_wrong.py").write_text(HEAD + "".join(f"    {line}\n" for line in WRONG))
    return tmp_path


def test_mypy_strict(project: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "test_right.py", "test_wrong.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode == 1, done.stdout + done.stderr
    assert [int(line.split(":")[1]) for line in errors] == [6 + number for number in range(len(WRONG))], errors
    assert [name for name, line in zip(WRONG.values(), errors, strict=True) if name not in line] == []
    assert not any(line.startswith("test_right") for line in errors)


def test_pyright(project: Path) -> None:
    pytest.importorskip("basedpyright")
    (project / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "test_right.py",
        "test_wrong.py",
    ]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    found = [(Path(each["file"]).name, each["message"]) for each in json.loads(done.stdout)["generalDiagnostics"]]
    assert {name for name, _ in found} == {"test_wrong.py"}, found
    assert len(found) == len(WRONG), found
    assert [name for name, (_, text) in zip(WRONG.values(), found, strict=True) if name not in text] == []
