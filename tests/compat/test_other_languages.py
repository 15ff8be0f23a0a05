"""kafkajs (Node.js) and Sarama (Go): topics, a transaction that counts and one that does not, a group and its offsets.

KAFKAPY_COMPAT_SERVER=apache shows that Apache Kafka gives them the same.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tools.go_clients import SARAMA, build
from tools.kafkajs import NODE_MODULES, SOURCE

pytestmark = pytest.mark.long

TIMEOUT_S = 180


def found_by(*command: str, environment: Mapping[str, str] = os.environ) -> Any:
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return json.loads(ended.stdout)


def test_kafkajs(bootstrap: str, topic: str) -> None:
    node = shutil.which("node")
    if node is None or not NODE_MODULES.is_dir():
        pytest.skip("kafkajs is missing: install Node.js with npm and run `make tools`")
    environment = {**os.environ, "NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    found = found_by(node, str(SOURCE / "steps.js"), bootstrap, topic, f"{topic}-group", environment=environment)
    offsets = found.pop("offsets")  # it may go on beyond markers and what was aborted
    assert len(offsets) == 3
    assert all(
        int(offset) in behind for offset, behind in zip(offsets, (range(4, 8), range(3, 5), range(3, 5)), strict=True)
    )
    assert found == {
        "created": True,
        "createdAgain": False,
        "partitions": [0, 1, 2],
        "retention": "123456789",
        "values": sorted(f"key {number}, value {number}, {number}" for number in range(10)),
        "group": ["Empty", "consumer"],
    }


def test_sarama(bootstrap: str, topic: str) -> None:
    if not SARAMA.exists():
        pytest.skip("Sarama's program is missing: install Go 1.26 and run `make tools`")
    why_not = build(SARAMA, offline=True)
    if why_not:
        pytest.skip(why_not)
    found = found_by(str(SARAMA), bootstrap, topic, f"{topic}-group")
    assert "already exists" in found.pop("createdAgain")
    assert found == {
        "partitions": 3,
        "retention": "123456789",
        "values": [f"value {number}, {number}" for number in range(10)],
        "offsets": [4, 3, 3],
        "group": ["Empty", "consumer"],
    }
