"""What a group's coordinator shows and writes where clients rarely look: assignments mid-rebalance, its own batches."""

from collections.abc import Callable

from tests.support.client_requests import LATEST, batches_in, fetch, list_offset
from tests.support.membership import Member, describe_group, stabilize
from tests.support.offsets import commit
from tests.support.wire import WireClient

OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50


def test_a_generation_without_an_assignment_leaves_nobody_the_one_before(
    connect: Callable[[], WireClient], client: WireClient, group: str
) -> None:
    member = Member(connect(), group, instance_id="i")
    stabilize(member)
    (stable,) = describe_group(client, group).members
    assert bytes(stable.member_assignment)

    shown = []
    for metadata in (b"other", b"yet another"):
        member.send_join(protocols={"range": metadata})
        member.receive_join()
        (described,) = describe_group(client, group).members
        shown.append(bytes(described.member_assignment))

    assert shown == [bytes(stable.member_assignment), b""]


def test_the_coordinators_batches_count_from_0(client: WireClient, group: str) -> None:
    assert commit(client, group, group, 1) == [0]

    written = [
        (batch.base_sequence, batch.producer_id, batch.producer_epoch)
        for partition in range(OFFSETS_PARTITIONS)
        if list_offset(client, OFFSETS_TOPIC, LATEST, partition=partition).offset > 0
        for batch in batches_in(fetch(client, OFFSETS_TOPIC, partition=partition))
        if not batch.is_transactional
    ]

    assert set(written) == {(0, -1, -1)}
