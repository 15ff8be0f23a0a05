"""Requests about a streams group, sent to one broker after another, and what each answers, to be compared."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import TaskIds, Topology
from kafkapy.types import uuid_to_string
from tests.support.client_requests import create_topic, metadata, until
from tests.support.offsets import find_coordinator
from tests.support.recorded_groups import unordered
from tests.support.streams_members import LEAVES, StreamsMember, reading
from tests.support.wire import WireClient

PARTITIONS: Final = 3
MISSING_SOURCE_TOPICS: Final = 1
"""A status of StreamsGroupHeartbeat's response (KIP-1071)."""


class Chapter:
    """Requests to one broker about one group, which reads a topic of its name, and what was answered."""

    def __init__(self, client: WireClient, name: str) -> None:
        self.client = client
        self.group = name
        self.responses: list[tuple[str, Any]] = []
        self._members: dict[str, StreamsMember] = {}
        self._numbers = itertools.count()
        self.topic_id = create_topic(client, name, PARTITIONS)
        find_coordinator(client, name)
        self._until_known()

    def _until_known(self) -> None:
        """Wait until the coordinator knows the topic: Apache Kafka's learns of it after the broker leads it."""
        probe = StreamsMember(self.client, f"{self.group}-probe", "probe")
        until(lambda: all(each.status_code != MISSING_SOURCE_TOPICS for each in probe.join(reading(self.group)).status))
        assert probe.heartbeat(member_epoch=LEAVES).error_code == 0

    def tell(self, what: str, request: Any, version: int) -> Any:
        """Send a request, and keep its response."""
        response = self.client.call(request, version)
        self.keep(what, response, version)
        return response

    def keep(self, what: str, response: Any, version: int) -> None:
        told = json.dumps(unordered(to_json(response, version)))
        self.responses.append((what, json.loads(told.replace(uuid_to_string(self.topic_id), "the topic's id"))))

    def member(self, member_id: str, *, group: str = "", **fields: Any) -> "ToldMember":
        """Return a member of the chapter's group, or another one."""
        return ToldMember(self, StreamsMember(self.client, group or self.group, member_id, **fields))

    def describe(self) -> None:
        self.tell("described", StreamsGroupDescribeRequest(group_ids=[self.group]), 1)

    def until_applied(self) -> None:
        """Wait until the broker has applied all that the controller has accepted so far, such as configs of groups.

        Batches of metadata records are applied in their order, but a topic may be visible before the whole batch is
        applied: so two topics, one created after the other is there.
        """
        for _ in range(2):
            create_topic(self.client, f"{self.group}-{next(self._numbers)}")

    def until_made(self, topic: str) -> None:
        until(lambda: metadata(self.client, topic).topics[0].error_code == 0)


class ToldMember:
    """A member whose heartbeats are kept."""

    def __init__(self, chapter: Chapter, member: StreamsMember) -> None:
        self._chapter = chapter
        self._member = member

    @property
    def epoch(self) -> int:
        return self._member.epoch

    def beat(self, what: str = "heartbeat", version: int = 1, **fields: Any) -> Any:
        response = self._member.heartbeat(version, **fields)
        self._chapter.keep(f"{self._member.member_id}: {what}", response, version)
        return response

    def join(self, topology: Topology, what: str = "joins", **fields: Any) -> Any:
        before = self._member.tasks
        response = self._member.join(topology, **fields)
        if response.error_code:
            self._member.tasks = before
        self._chapter.keep(f"{self._member.member_id}: {what}", response, 1)
        return response

    def until(self, is_so: Callable[[Any], bool]) -> None:
        """Let it do as it is told until a response is as wanted: how often it has to ask is not compared."""
        until(lambda: is_so(self._member.heartbeat()))

    @property
    def tasks(self) -> Mapping[str, Any]:
        return self._member.tasks


def ids(*partitions: int, subtopology: str = "0") -> list[TaskIds]:
    return [TaskIds(subtopology, partitions=list(partitions))] if partitions else []
