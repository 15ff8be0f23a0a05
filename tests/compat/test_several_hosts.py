"""The pages for whoever runs three hosts, in their order on one cluster; and what acks promises.

tests/support/hosts.py stands for the hosts, for ssh and for systemctl; all commands of kafkapy are run as they are.
"""

from pathlib import Path

import pytest

from tests.support.hosts import PLACES, addresses, equip
from tests.support.pages import ROOT, blocks, new_reader

pytestmark = [pytest.mark.long, pytest.mark.ours]
HOWTO = ROOT / "docs" / "howto"
QUICK = "\nbroker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=300\noffsets.topic.num.partitions=2"


def test_three_hosts_are_set_up_restarted_and_repaired(tmp_path: Path) -> None:
    replaced = {"min.insync.replicas=2": f"min.insync.replicas=2{QUICK}", **addresses(), **PLACES}
    with new_reader(tmp_path, replaced) as reader:
        hosts = equip(reader, tmp_path / "hosts")
        try:
            printed = [
                reader.run(block)
                for page in ("three_hosts", "replace")
                for block in blocks((HOWTO / f"{page}.md").read_text())
            ]
        finally:
            hosts.kill_all()
    assert "quorum: node " in printed[3]
    assert printed[-2] == "quorum: no active controller is known\n"
    assert " leads at epoch " in printed[-1]


def test_what_acks_promise_is_kept(tmp_path: Path) -> None:
    with new_reader(tmp_path, {"kafkapy cluster up -n 3": "kafkapy cluster up -n 3 --port 0"}) as reader:
        equip(reader, tmp_path / "hosts")
        printed = [reader.run(block) for block in blocks((HOWTO / "promises.md").read_text())]
    assert "100\n" in printed[0]
    assert printed[1] == "acknowledged: True\nread: kept\n"
