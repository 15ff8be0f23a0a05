"""Why a record of a queue is not delivered: one sentence for each place where it can be."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kafkapy.cli.committed_offsets import NoResponseError
from kafkapy.cli.share_explain import PartitionFacts, Run, holder, share_facts, why
from kafkapy.group.explain import IN_FLIGHT_TAG
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker

WORKER = "worker (/127.0.0.1)"


def run(first: int, last: int, state: str, count: int, **rest: Any) -> Run:
    return Run(first, last, state, count, rest.get("member", ""), rest.get("until_ms"), rest.get("is_written", True))


FACTS = PartitionFacts(
    topic="orders",
    partition=0,
    state="active",
    start_offset=5,
    next_offset=30,
    log_start_offset=2,
    high_watermark=50,
    last_stable_offset=40,
    reads_committed=False,
    max_record_locks=100,
    delivery_count_limit=5,
    members=(WORKER,),
    runs=(
        run(5, 9, "acquired", 2, member=WORKER, until_ms=0),
        run(10, 10, "available", 3),
        run(11, 12, "acknowledged", 1),
        run(13, 13, "archived", 5),
        run(14, 14, "archived", 1),
        run(15, 15, "archiving", 5),
        run(16, 16, "acknowledged", 1, is_written=False),
    ),
)


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [
        (1, "1 is no longer in the log, which begins at 2"),
        (3, "3 is done with, or was never to be read: the group is past it, at 5"),
        (10, "10 is available, and failed 3 of 5 times: the next member that fetches gets it"),
        (12, "12 is accepted, at delivery 1 of 5"),
        (13, "13 is archived (out of attempts), after 5 of 5 deliveries: it never comes again"),
        (14, "14 is archived (rejected, or of an aborted transaction), after 1 of 5 deliveries: it never comes again"),
        (15, "15 is being copied to the dead-letter topic, after 5 of 5 deliveries"),
        (16, "16 is acknowledged, which is being written"),
        (20, "20 is available: the next member that fetches gets it"),
        (30, "30 has not been fetched yet: the next member that fetches gets it, after the records before it"),
        (50, "50 is not there yet: the partition's high watermark is 50"),
    ],
)
def test_each_record_has_its_reason(offset: int, sentence: str) -> None:
    assert why(FACTS, offset) == sentence


def test_a_lock_has_a_holder_and_an_end() -> None:
    sentence = why(FACTS, 7)
    assert sentence.startswith(f"7 is acquired by {WORKER} until 19")
    assert sentence.endswith(": delivery 2 of 5")


def test_what_is_not_acquired_waits_for_something() -> None:
    assert "open at 40" in why(replace(FACTS, reads_committed=True), 45)
    assert "none fetches from the partition's leader" in why(replace(FACTS, members=()), 35)
    full = why(replace(FACTS, max_record_locks=25), 35)
    assert "25 records are in flight, of at most 25, and 5-9 is acquired by worker" in full
    assert "not among the first runs" in why(replace(FACTS, runs_left_out=1), 20)


def test_the_start_is_held_by_the_first_that_is_not_done() -> None:
    assert str(holder(FACTS)).startswith("5-9 is acquired by worker")
    assert holder(replace(FACTS, runs=())) is None
    done = replace(FACTS, runs=(run(5, 9, "acknowledged", 1), run(10, 10, "available", 1)))
    assert str(holder(done)).startswith("10 is available")
    assert "available again" in str(holder(replace(FACTS, runs=(run(7, 9, "available", 1),))))
    assert "moves with the next write" in str(holder(replace(FACTS, runs=(run(5, 9, "archived", 1),))))


class TwoBrokers:
    """Broker 1 does not answer, broker 2 leads a share partition."""

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        if node_id is None:
            return MetadataResponse(brokers=[MetadataResponseBroker(each, host="h", port=1) for each in (1, 2)])
        if node_id == 1:
            raise NoResponseError("no broker answers at h:1")
        told = json.dumps([{**TOLD, "a later broker": "tells more"}]).encode()
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", unknown_tagged_fields={IN_FLIGHT_TAG: told})]
        )


TOLD = {
    **{name: getattr(FACTS, name) for name in ("topic", "partition", "state", "start_offset", "next_offset")},
    **{name: getattr(FACTS, name) for name in ("log_start_offset", "high_watermark", "last_stable_offset")},
    **{name: getattr(FACTS, name) for name in ("reads_committed", "max_record_locks", "delivery_count_limit")},
    "members": ["m1", "m2"],
    "runs": [],
    "runs_left_out": 0,
}


def test_a_broker_that_does_not_answer_is_left_out_and_named() -> None:
    silent: list[str] = []
    (facts,) = share_facts(TwoBrokers(), "g", {"m1": WORKER}, silent) or ()
    assert facts.members == (WORKER, "m2")
    assert silent == ["no broker answers at h:1"]
    with pytest.raises(NoResponseError):
        share_facts(TwoBrokers(), "g", {})
