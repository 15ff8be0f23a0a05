"""share.version is lowered and raised: at 1 what a group rejects is archived, at 2 it is a dead letter (KIP-1191)."""

from collections.abc import Iterator

import pytest

from kafkapy.share.letter_headers import OFFSET_HEADER
from tests.scenarios.conftest import serving
from tests.support.client_requests import LATEST, batch_of, consume, create_topic, list_offset, produce, until
from tests.support.features import SAFE_DOWNGRADE, UPGRADE, feature_levels, set_feature_level
from tests.support.group_configs import set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.share_members import LEAVES, ShareMember
from tests.support.wire import WireClient

REJECT = 3
GROUP, TOPIC, DEAD = "g", "orders", "dlq.orders"
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}


@pytest.fixture
def own_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    with serving(tmp_path_factory, PROPERTIES) as bootstrap, WireClient(bootstrap) as client:
        yield client


def set_share_version(client: WireClient, level: int, upgrade_type: int) -> None:
    set_feature_level(client, "share.version", level, upgrade_type)
    until(lambda: feature_levels(client)["share.version"] == level)


def letters(client: WireClient) -> list[int]:
    end = list_offset(client, DEAD, LATEST).offset
    return [int(dict(each.headers)[OFFSET_HEADER] or b"") for each in consume(client, DEAD, offset=0, end_offset=end)]


def test_rejected_records_are_dead_letters_from_share_version_2_on(own_client: WireClient) -> None:
    client = own_client
    assert feature_levels(client)["share.version"] == 2
    topic_id = create_topic(client, TOPIC)
    create_topic(client, DEAD, errors_deadletterqueue_group_enable="true")
    own = {"share_auto_offset_reset": "earliest", "errors_deadletterqueue_topic_name": DEAD}
    set_group_configs(client, GROUP, **own)
    assert produce(client, TOPIC, batch_of(6)).error_code == 0
    find_coordinator(client, GROUP)
    member = ShareMember(client, GROUP, topic_id)
    member.join(TOPIC)

    set_share_version(client, 1, SAFE_DOWNGRADE)
    assert member.acquire(3) == [(0, 2, 1)]
    assert member.acknowledge((0, 2, [REJECT])) == 0

    set_share_version(client, 2, UPGRADE)
    assert member.acquire(3) == [(3, 5, 1)]
    assert member.acknowledge((3, 3, [REJECT]), (4, 5, [REJECT])) == 0
    until(lambda: len(letters(client)) >= 3)
    assert letters(client) == [3, 4, 5]
    member.heartbeat(member_epoch=LEAVES)
