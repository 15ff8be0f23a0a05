"""What Java's Admin makes of administration that a fault refuses, item by item, and that nothing was done."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kafkapy.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.ours]

PROGRAM: Final = Path(__file__).with_name("FailedAdmin.java")


def test_java_shows_the_error_of_each_item_and_the_next_call_succeeds(
    java_tool: Callable[..., str], tmp_path: Path
) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topics("orders", partitions=2)
        faults = [
            broker.faults.fail("AlterClientQuotas", "POLICY_VIOLATION", times=1),
            broker.faults.fail("AlterUserScramCredentials", "UNACCEPTABLE_CREDENTIAL", times=1),
            broker.faults.fail("AlterReplicaLogDirs", "LOG_DIR_NOT_FOUND", topic="orders", partition=1, times=1),
            broker.faults.fail("WriteTxnMarkers", "TRANSACTION_COORDINATOR_FENCED", partition=0, times=1),
            broker.faults.fail("WriteTxnMarkers", "NOT_LEADER_OR_FOLLOWER", partition=1, times=1),
        ]
        printed = java_tool(str(PROGRAM), broker.bootstrap_servers, str(tmp_path))
        assert [fault.hits for fault in faults] == [1] * len(faults)
    lines = [line.split("\t") for line in printed.splitlines()]
    half = len(lines) // 2
    refused = {name: came.partition(":")[0] for name, came in lines[:half]}
    assert refused == {
        "quotas alice": "PolicyViolationException",
        "quotas bob": "PolicyViolationException",
        "quotas": "0",
        "credentials alice": "UnacceptableCredentialException",
        "credentials bob": "UnacceptableCredentialException",
        "credentials": "0",
        "directories 0": "done",
        "directories 1": "LogDirNotFoundException",
        "transactions 0": "TransactionCoordinatorFencedException",
        "transactions 1": "done",  # Java asks who leads, and sends it again
    }
    done = {**dict.fromkeys(refused, "done"), "quotas": "2", "credentials": "2"}
    assert dict(lines[half:]) == done
