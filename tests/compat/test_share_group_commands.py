"""`kafkapy groups` on share groups of a broker that it has not made: the same commands work with Apache Kafka."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.group_configs import set_group_configs
from tests.support.offsets import commit, find_coordinator
from tests.support.share_members import LEAVES, ShareMember
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

PROPERTIES = {"share.coordinator.state.topic.num.partitions": "3", "offsets.topic.num.partitions": "3"}
QUEUE, READERS, TOPIC = "queue", "readers", "orders"
IS_APACHE = os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache"

Groups = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("commands") / "data", PROPERTIES) as running:
        yield running


@pytest.fixture
def groups(bootstrap: str) -> Groups:
    """Run `kafkapy groups`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkapy", "groups", *arguments, "-b", bootstrap]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


def described(groups: Groups) -> dict[str, list[tuple[int, int]]]:
    """Return (start offset, lag) of the partitions of each share group."""
    done = groups("describe", "--all", "--json")
    assert done.returncode == 0, done.stderr
    shares = [each for each in json.loads(done.stdout) if each["type"] == "Share"]
    return {each["group"]: [(one["start"], one["lag"]) for one in each["partitions"]] for each in shares}


def test_a_share_group_is_shown_explained_moved_and_deleted(bootstrap: str, groups: Groups) -> None:
    with WireClient(bootstrap) as client:
        topic_id = create_topic(client, TOPIC)
        assert produce(client, TOPIC, batch_of(10)).error_code == 0
        for name in (QUEUE, READERS):
            find_coordinator(client, name)
        assert commit(client, READERS, TOPIC, 2) == [0]
        set_group_configs(client, QUEUE, share_auto_offset_reset="earliest")
        member = ShareMember(client, QUEUE, topic_id)
        member.join(TOPIC)
        assert member.acquire(10) == [(0, 9, 1)]
        listed = {each["group"]: each["type"] for each in json.loads(groups("list", "--json").stdout)}
        assert listed == {QUEUE: "Share", READERS: "Classic"}
        explained = groups("explain", QUEUE, "--topic", TOPIC, "--offset", "3")
        busy = groups("reset", QUEUE, "--topic", TOPIC, "--to", "4", "--execute")
        member.heartbeat(member_epoch=LEAVES)
    if IS_APACHE:
        assert "keeps no explanations" in explained.stderr
    else:
        assert f"{TOPIC}-0: 3 is acquired by" in explained.stdout
    assert (busy.returncode, "has members, stop them first" in busy.stderr) == (1, True)
    assert described(groups) == {QUEUE: [(0, 10)]}
    assert groups("reset", QUEUE, "--topic", TOPIC, "--to", "4", "--execute").returncode == 0
    assert described(groups) == {QUEUE: [(4, 6)]}
    for name in (QUEUE, READERS):
        done = groups("delete", name, "--topic", TOPIC)
        assert (done.returncode, done.stdout) == (0, f"Deleted the offsets of group {name} for {TOPIC}.\n")
    assert described(groups) == {QUEUE: []}
    assert groups("delete", QUEUE).stdout == f"Deleted group {QUEUE}.\n"
    assert described(groups) == {}
