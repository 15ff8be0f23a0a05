"""A broker imports nothing of share and streams groups before the first request about one: most have none."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from kafkapy import Broker
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.support.client_requests import batch_of, create_topic, produce, until
from tests.support.offsets import commit, find_coordinator
from tests.support.streams_members import StreamsMember, reading
from tests.support.wire import WireClient

LATE = ("kafkapy.share.", "kafkapy.group.share.", "kafkapy.group.streams.group", "kafkapy.runtime.share.")
LATE += ("kafkapy.handlers.share.share", "kafkapy.handlers.streams.")


def imported():
    return sorted({late for late in LATE for name in sys.modules if name.startswith(late)})


with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
    create_topic(client, "t")
    produce(client, "t", batch_of(1))
    find_coordinator(client, "g")
    assert commit(client, "g", "t", 1) == [0]
    print(imported())
    joining = ShareGroupHeartbeatRequest("queue", member_id="m", subscribed_topic_names=["t"])
    assert client.call(joining, 1).error_code == 0
    print(imported())
    assert StreamsMember(client, "application").join(reading("t")).error_code == 0
    print(imported())
"""


def test_each_kind_is_imported_with_its_first_request() -> None:
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    of_share = ["kafkapy.group.share.", "kafkapy.handlers.share.share", "kafkapy.share."]
    of_both = sorted([*of_share, "kafkapy.group.streams.group", "kafkapy.handlers.streams."])
    assert result.stdout.splitlines() == ["[]", str(of_share), str(of_both)]
