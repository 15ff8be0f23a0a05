"""Share sessions and acknowledgements by raw requests to kafkapy and to Apache Kafka 4.4.0: each response is the same.

Each chapter sends the same requests to both, one after the other, and compares what they respond field by field; of the
records it compares which batches come. The leader that a response names is left out: a deviation (share_fetch.py).
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.servers import Server
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.record.batches import batches
from kafkapy.types import uuid_to_string
from tests.support import java_tools
from tests.support.beside_java import both_brokers, differing
from tests.support.client_requests import batch_of, create_topic, delete_topic, produce
from tests.support.group_configs import set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.recorded_groups import unordered
from tests.support.share_members import ENDS, OPENS, ShareMember
from tests.support.wire import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

PROPERTIES = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"}
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOTHING = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
LEFT_OUT = ("currentLeader", "throttleTimeMs")


class Chapter:
    """Requests to one broker about one share group, which reads a topic of its name, and what was responded."""

    def __init__(self, client: WireClient, server: Server, name: str) -> None:
        self.client = client
        self.server = server
        self.responses: list[tuple[str, Any]] = []
        self.topic_id = create_topic(client, name, 2)
        find_coordinator(client, name)
        set_group_configs(client, name, share_auto_offset_reset="earliest")
        for count in (5, 3, 2):
            produce(client, name, batch_of(count))
        self._name = name
        self.member("joins").sender.join(name)

    def member(self, member_id: str, connection: WireClient | None = None) -> "ToldMember":
        """Return one with a session of its own: a session belongs to a member and a connection."""
        return ToldMember(self, ShareMember(connection or self.client, self._name, self.topic_id, member_id))

    def keep(self, what: str, response: Any, version: int) -> None:
        self.responses.append((what, unordered(self._plain(to_json(response, version)))))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            return {
                key: _batches(each) if key == "records" else self._plain(each)
                for key, each in value.items()
                if key not in LEFT_OUT
            }
        return "the topic's id" if value == uuid_to_string(self.topic_id) else value


def _batches(encoded: str | None) -> list[tuple[int, int]] | None:
    """Return the first and the last offset of each batch."""
    if encoded is None:
        return None
    found = batches(base64.b64decode(encoded))
    return [(batch.base_offset, batch.next_offset - 1) for batch in found]


class ToldMember:
    """A member whose requests are kept with what was responded."""

    def __init__(self, chapter: Chapter, sender: ShareMember) -> None:
        self._chapter = chapter
        self.sender = sender

    def fetch(self, what: str, *acknowledged: Any, version: int = 2, **fields: Any) -> Any:
        values = {"max_wait_ms": 1_000 if fields.pop("has_records", False) else 50, **fields}
        response = self.sender.fetch(*acknowledged, version=version, **values)
        self._chapter.keep(f"{self.sender.member_id} fetches {what}", response, version)
        return response

    def acknowledge(self, what: str, *acknowledged: Any, version: int = 2, **fields: Any) -> None:
        response = self.sender.send_acknowledgements(*acknowledged, version=version, **fields)
        self._chapter.keep(f"{self.sender.member_id} acknowledges {what}", response, version)


def sessions(told: Chapter) -> None:
    """Sessions that are not there, begin, count, take on and give up partitions, begin anew and end."""
    member = told.member("m")
    member.fetch("without a session", share_session_epoch=1)
    member.fetch("to end no session", share_session_epoch=ENDS)
    member.acknowledge("without a session", (0, 0, [ACCEPT]), share_session_epoch=1)
    member.acknowledge("as the first request", (0, 0, [ACCEPT]), share_session_epoch=OPENS)
    member.acknowledge("to end no session", (0, 0, [ACCEPT]), share_session_epoch=ENDS)
    member.fetch("with acknowledgements as the first request", (0, 0, [ACCEPT]))
    member.fetch("with a member id that is too long", member_id="m" * 37)
    member.fetch("without a member id", member_id="")
    member.fetch("as the first request", has_records=True)
    member.fetch("again at epoch 2", share_session_epoch=2)
    member.fetch("at an epoch below", share_session_epoch=-2)
    member.acknowledge("at epoch 2", (0, 0, [ACCEPT]), share_session_epoch=2)
    member.fetch("from another partition, too", partition=1)
    member.fetch("from a partition that there is not", partition=9)
    member.fetch("no more of the other partition", topics=[], forgotten_topics_data=[_forgotten(told, 1)])
    member.fetch("no more of what it does not fetch", topics=[], forgotten_topics_data=[_forgotten(told, 1, 7)])
    member.fetch("from another topic", topics=[_named(b"t" * 16, 0)])
    member.fetch("and acknowledges", (0, 1, [ACCEPT]))
    member.fetch("as the first request once more", share_session_epoch=OPENS, has_records=True)
    member.sender.session_epoch = 1
    member.acknowledge("after that", (2, 4, [ACCEPT]))
    member.fetch("by version 1", version=1)
    member.fetch("for the last time", (5, 5, [ACCEPT]), share_session_epoch=ENDS)
    member.fetch("after the end", share_session_epoch=3)
    member.sender.session_epoch = OPENS
    member.fetch("in a new session", has_records=True)
    member.acknowledge("for the last time", (6, 6, [ACCEPT]), share_session_epoch=ENDS)
    member.acknowledge("after the end", (7, 7, [ACCEPT]), share_session_epoch=2)
    member.fetch("of no group", group_id="", share_session_epoch=OPENS)


def acknowledgements(told: Chapter) -> None:
    """Types, ranges and orders that may be, and those that may not; records of others, done, and not there."""
    member = told.member("m")
    member.fetch("first", has_records=True)
    member.fetch("the rest", has_records=True)
    for what, acknowledged in {
        "an unknown type": [(0, 0, [9])],
        "a negative type": [(0, 0, [-1])],
        "no type": [(0, 0, [])],
        "types of another number": [(0, 3, [ACCEPT, ACCEPT])],
        "a range from its end": [(3, 2, [ACCEPT])],
        "ranges out of order": [(3, 4, [ACCEPT]), (0, 1, [ACCEPT])],
        "ranges that overlap": [(0, 3, [ACCEPT]), (2, 4, [ACCEPT])],
        "a renewal in a request that is none": [(0, 0, [RENEW])],
        "beyond what is in flight": [(100, 101, [ACCEPT])],
        "good ones, and then a bad one": [(0, 1, [ACCEPT]), (50, 50, [ACCEPT])],
        "a negative offset": [(-1, 0, [ACCEPT])],
    }.items():
        member.acknowledge(what, *acknowledged)
    member.acknowledge("nothing of the partition")
    member.acknowledge("a partition that is not in the session", (0, 0, [ACCEPT]), partition=1)
    member.acknowledge("a partition that there is not", (0, 0, [ACCEPT]), partition=9)
    member.acknowledge("another topic", (0, 0, [ACCEPT]), topic_id=b"t" * 16)
    member.acknowledge("one of each type", (0, 3, [ACCEPT, RELEASE, REJECT, GAP]))
    member.acknowledge("what is done", (0, 0, [ACCEPT]))
    member.acknowledge("what was released", (1, 1, [ACCEPT]))
    member.acknowledge("what was rejected", (2, 2, [ACCEPT]))
    member.fetch("what was released", has_records=True)
    member.acknowledge("below the start, too", (0, 1, [ACCEPT]))
    member.acknowledge("a part of a batch", (5, 6, [ACCEPT]))
    member.acknowledge("the last ones", (4, 4, [ACCEPT]), (7, 9, [RELEASE]))
    member.fetch("what is left", has_records=True)
    member.acknowledge("what is left", (7, 9, [REJECT]))
    member.fetch("nothing more")


def others(told: Chapter) -> None:
    """Records of another member, and those that it released by its end."""
    with WireClient(told.server.bootstrap) as connection:
        first, second = told.member("first"), told.member("second", connection)
        first.fetch("all", has_records=True)
        first.fetch("all", has_records=True)
        second.fetch("what nobody has")
        second.acknowledge("what the other has", (0, 0, [ACCEPT]))
        first.acknowledge("and ends", (0, 0, [ACCEPT]), share_session_epoch=ENDS)
        second.fetch("what the other had", has_records=True)
        first.acknowledge("what it had", (1, 1, [ACCEPT]), share_session_epoch=1)
        second.acknowledge("what it has", (1, 1, [ACCEPT]))


def renewals(told: Chapter) -> None:
    """Renewals fetch nothing; they are told apart from other acknowledgements."""
    member = told.member("m")
    member.fetch("first", has_records=True)
    member.fetch("renewing, with limits", (0, 0, [RENEW]), is_renew_ack=True)
    for limit in NOTHING:
        member.fetch(f"renewing, with {limit}", (0, 0, [RENEW]), is_renew_ack=True, **{**NOTHING, limit: 1})
    member.fetch("renewing", (0, 0, [RENEW]), is_renew_ack=True, **NOTHING)
    member.fetch("renewing and accepting", (0, 1, [RENEW, ACCEPT]), is_renew_ack=True, **NOTHING)
    member.fetch("renewing what is done", (1, 1, [RENEW]), is_renew_ack=True, **NOTHING)
    member.acknowledge("a renewal", (2, 2, [RENEW]), is_renew_ack=True)
    member.acknowledge("a renewal without saying so", (2, 2, [RENEW]))
    member.acknowledge("saying so without a renewal", (2, 2, [ACCEPT]), is_renew_ack=True)
    member.acknowledge("a renewal of a record beyond", (99, 99, [RENEW]), is_renew_ack=True)


def limits(told: Chapter) -> None:
    """Limits of records, by both modes, and batches of acquired records."""
    member = told.member("m")
    member.fetch("an unknown mode", share_acquire_mode=2)
    member.fetch("two records of a batch", max_records=2, batch_size=2, share_acquire_mode=1, has_records=True)
    member.fetch("a batch, at most two records", max_records=2, batch_size=2, has_records=True)
    member.fetch("one record at a time", max_records=4, batch_size=1, share_acquire_mode=1, has_records=True)
    member.fetch("nothing", max_records=0)
    member.acknowledge("some", (0, 4, [RELEASE]))
    member.fetch("few bytes", max_bytes=1, has_records=True)
    member.fetch("for more bytes than there are", min_bytes=1 << 20)


def deletion(told: Chapter) -> None:
    """A topic that is deleted while its records are acquired."""
    member = told.member("m")
    member.fetch("first", has_records=True)
    delete_topic(told.client, "deletion")
    member.fetch("what is gone")
    member.acknowledge("what is gone", (0, 0, [ACCEPT]))
    member.fetch("nothing, and ends", topics=[], share_session_epoch=ENDS)


def _named(topic_id: bytes, partition: int) -> fetching.FetchTopic:
    return fetching.FetchTopic(topic_id, partitions=[fetching.FetchPartition(partition)])


def _forgotten(told: Chapter, *partitions: int) -> fetching.ForgottenTopic:
    return fetching.ForgottenTopic(told.topic_id, partitions=list(partitions))


CHAPTERS = (sessions, acknowledgements, others, renewals, limits, deletion)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with both_brokers(tmp_path_factory, PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_responses_are_the_same(chapter: Callable[[Chapter], None], servers: list[Server]) -> None:
    ours, javas = [responses_to(chapter, server) for server in servers]
    assert differing(ours, javas) == []


def responses_to(chapter: Callable[[Chapter], None], server: Server) -> list[tuple[str, Any]]:
    with WireClient(server.bootstrap) as client:
        told = Chapter(client, server, chapter.__name__)
        chapter(told)
        return told.responses
