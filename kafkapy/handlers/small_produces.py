"""Small Produce requests served together: those that follow each other on a connection, for one partition.

A client that sends many small requests sends the same bytes again and again, but for correlation id and batch. What
stands between these two (client id, acks, time-out, topic, partition) is looked up as it is: a plan says what it means
and what the answer looks like. So a request costs one comparison, one check of its batch, and its part of one write.

`serve` takes requests from the front while each can be appended at once: versions 9 to 13, acks 1 or -1, no
transactional id, one topic with one partition that is led here, a plain batch (storage/log/gathered_append.py), and the
client has no quota for it. With acks=-1 answers wait together for the other replicas. The first one that is anything
else, good or bad, is left with all behind it to handlers/produce.py, which has the words for it. Whichever way a
request goes, its effects and its answer are the same; but what a disk has no room for is refused as it was gathered,
all or nothing.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from kafkapy.errors import ApiError, ProtocolError, StorageError
from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import Connection, RequestContext, Services
from kafkapy.handlers.delayed_answers import DelayedAnswers
from kafkapy.handlers.produce import NO_LEADER, NO_RECORD_ERRORS, TOPIC_IDS_SINCE, VALID_ACKS, tell_leaders
from kafkapy.protocol.connection import MAX_GATHERED_FRAME_BYTES, Served
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.messages.produce_request import ProduceRequest
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.record.batch import ATTRIBUTES_POSITION
from kafkapy.replication.delayed_produce import REQUEST_TIMED_OUT, PartitionAppend
from kafkapy.replication.hosted import HostedPartition
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS, NO_ACKS
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.storage.log.gathered_append import GatheredAppend

PRODUCE: Final = ProduceRequest.API_KEY
FIRST_VERSION: Final = ProduceRequest.FLEXIBLE_FROM
LAST_VERSION: Final = ProduceRequest.MAX_VERSION
MAX_PLANS: Final = 16_384
"""Client ids times acks, time-outs, versions and partitions (0.7 to 2 KiB each); with one more, all are made again."""
MIN_SWEEP: Final = 16
"""With so many more plans, and twice as many, those of partitions that are gone are looked for: they hold logs."""
MAX_CLIENT_ID_BYTES: Final = 255
"""Plans hold it three times."""
_unpack_frame = Struct(">iIi").unpack_from
"""Size; api key and version in one, which is the version where the key is 0; correlation id."""
_unpack_request = Struct(">iIih").unpack_from
"""The same, and the length of the client id."""

_PREFIX_START: Final = 12
"""Behind a frame's size, api key, version and correlation id. The prefix ends before the length of the batch."""
_LEAST_BYTES: Final = 64
"""No request with a batch is smaller; so much can be looked at without asking for the end."""
_TAIL: Final = b"\0\0\0"
"""Behind the batch: no tagged fields of partition, topic and request."""

_OFFSETS: Final = Struct(">qqq")
"""Of an answer: base offset, log append time, log start offset."""
_NO_OFFSETS: Final = (0x5A5A5A5A5A5A5A5A, -1, 0x5B5B5B5B5B5B5B5B)
"""Stand where a plan's answers have their offsets, to find the place."""


class SmallProduces:
    """Recognises small requests by their bytes and serves those of a connection that follow each other at once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._authorizer = services.authorizer
        self._manager = services.replica_manager
        self._plans: dict[bytes, _Plan] = {}
        self._sweep_at = MIN_SWEEP

    def serve(self, connection: Connection, data: bytes, position: int, most: int) -> Served | None:
        """A protocol.connection.Gather, for frames that are Produce requests."""
        plan = self._find(data, position)
        if plan is None:
            return None
        quotas = self._services.client_quotas
        if quotas is not None and quotas.concern_produces(connection.principal, plan.header.client_id):
            return None
        if not _is_plain(data, position + _PREFIX_START + len(plan.prefix)):
            return None
        partition, manager = plan.partition, self._manager
        gathered = manager.begin_gathering(partition, plan.acks)
        if gathered is None or not self._is_allowed(connection, plan):
            return None
        correlation_ids, end = _gather(plan, gathered, data, position, most)
        if not correlation_ids:
            return None
        try:
            if not gathered.write():
                return None
        except (ApiError, StorageError, AssertionError) as error:
            self._log_questions(connection, plan, len(correlation_ids))
            return Served(len(correlation_ids), end, self._refusals(plan, correlation_ids, error))
        self._log_questions(connection, plan, len(correlation_ids))
        manager.tell_of_append(partition)
        assert partition.log is not None, "what was appended has a log"
        if plan.acks == ALL_ACKS and not partition.is_alone:
            together = _Replicated(self._services, connection, plan, correlation_ids, gathered)
            if not together.is_settled():
                return Served(len(correlation_ids), end, None, partial(self._wait, together))
            return Served(len(correlation_ids), end, together.answers())
        answers = plan.answers(correlation_ids, gathered.base_offsets, partition.log.log_start_offset)
        return Served(len(correlation_ids), end, answers)

    def _wait(self, together: "_Replicated", on_answers: Callable[[bytes], None]) -> None:
        """Wait for the replicas as long as the requests allow."""
        partition, timeout_ms = together.plan.partition, max(together.plan.timeout_ms, 0)
        self._manager.wait_for_commit(DelayedAnswers(together, on_answers), partition, timeout_ms=timeout_ms)

    def _find(self, data: bytes, position: int) -> "_Plan | None":
        """Return the plan of the request at `position`, None where it goes the ordinary way."""
        bytes_left = len(data) - position
        if bytes_left < _LEAST_BYTES:
            return None
        size, version, _, client_id_bytes = _unpack_request(data, position)
        if (
            client_id_bytes > MAX_CLIENT_ID_BYTES
            or not 0 < size <= min(MAX_GATHERED_FRAME_BYTES, bytes_left - 4)
            or not FIRST_VERSION <= version <= LAST_VERSION
        ):
            return None
        end = _prefix_end(data, position + _PREFIX_START + 2 + max(client_id_bytes, 0), version)
        if not 0 < end <= position + size:
            return None
        key = data[position + 6 : position + 8] + data[position + _PREFIX_START : end]
        plan = self._plans.get(key)
        if plan is not None and plan.partition.role is not Role.GONE:
            return plan
        plan = self._plan(data[position + 4 : position + 4 + size], data[position + _PREFIX_START : end])
        if plan is None:
            self._plans.pop(key, None)
            return None
        self._remember(key, plan)
        return plan

    def _remember(self, key: bytes, plan: "_Plan") -> None:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        if len(self._plans) >= self._sweep_at:
            self._plans = {key: each for key, each in self._plans.items() if each.partition.role is not Role.GONE}
            self._sweep_at = 2 * len(self._plans) + MIN_SWEEP

    def _plan(self, frame: bytes, prefix: bytes) -> "_Plan | None":
        """Return what the prefix of a request means, None where that is nothing for here."""
        try:
            header, position = read_request_header(frame)
            request, _ = ProduceRequest.read(frame, position, header.api_version)
        except ProtocolError:
            return None
        if request.acks == NO_ACKS or request.acks not in VALID_ACKS:
            return None
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        partitions = self._manager.partitions
        if header.api_version >= TOPIC_IDS_SINCE:
            partition = partitions.find_by_id(topic.topic_id, data.index)
        else:
            partition = partitions.find(topic.name, data.index)
        if partition is None or is_internal(partition.topic_partition.topic):
            return None
        return _Plan(header, prefix, request, partition, topic.name)

    def _is_allowed(self, connection: Connection, plan: "_Plan") -> bool:
        """Ask without a line in the audit log: requests that go the ordinary way are asked about there."""
        if self._authorizer.allows_everything:
            return True
        context = RequestContext(plan.header, connection)
        topic = plan.partition.topic_partition.topic
        return self._authorizer.is_allowed(context, AclOperation.WRITE, ResourceType.TOPIC, topic)

    def _log_questions(self, connection: Connection, plan: "_Plan", request_count: int) -> None:
        """Write the audit log's line for each request that was served here, one question each."""
        if not self._authorizer.logs_what_it_allows:
            return
        context = RequestContext(plan.header, connection)
        topic = plan.partition.topic_partition.topic
        for _ in range(request_count):
            self._authorizer.authorize(context, AclOperation.WRITE, ResourceType.TOPIC, topic)

    def _refusals(self, plan: "_Plan", correlation_ids: list[int], error: Exception) -> bytes:
        """Return the answers to requests whose batches could not be written."""
        append = PartitionAppend(plan.partition, b"", plan.new_response(-1, -1, -1))
        self._manager.refuse_append(append, error)
        response = plan.response_of(append.response)
        return b"".join(plan.encode(correlation_id, response) for correlation_id in correlation_ids)


class _Plan:
    """What requests with one prefix mean, and the parts of their answers."""

    __slots__ = ("_head", "_pack", "_tail", "_topic_name", "acks", "header", "partition", "prefix", "timeout_ms")

    def __init__(
        self, header: RequestHeader, prefix: bytes, request: ProduceRequest, partition: HostedPartition, topic_name: str
    ) -> None:
        """`topic_name`: as the request says it, which is not at all where it has the id."""
        self.header = header
        self.prefix = prefix
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.partition = partition
        self._topic_name = topic_name
        answer = self.encode(0, self.response_of(self.new_response(*_NO_OFFSETS)))
        self._head, _, self._tail = answer[8:].partition(_OFFSETS.pack(*_NO_OFFSETS))
        self._pack = Struct(f">ii{len(self._head)}sqqq{len(self._tail)}s").pack

    def new_response(
        self, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> PartitionProduceResponse:
        index = self.partition.topic_partition.partition
        return PartitionProduceResponse(
            index, 0, base_offset, log_append_time_ms, log_start_offset, NO_RECORD_ERRORS, None, NO_LEADER
        )

    def response_of(self, part: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse([TopicProduceResponse(self._topic_name, self.partition.topic_id, [part])])

    def encode(self, correlation_id: int, response: ProduceResponse) -> bytes:
        """Return an answer as it is sent."""
        out = Writer()
        write_response_header(out, PRODUCE, self.header.api_version, correlation_id)
        response.write(out, self.header.api_version)
        return len(out).to_bytes(4, "big") + bytes(out)

    def answers(self, correlation_ids: list[int], base_offsets: list[int], log_start_offset: int) -> bytes:
        """Return the answers to requests that were appended (with CreateTime, so there is no append time)."""
        pack, head, tail = self._pack, self._head, self._tail
        size = 4 + len(head) + _OFFSETS.size + len(tail)
        return b"".join(
            [
                pack(size, correlation_id, head, base_offset, -1, log_start_offset, tail)
                for correlation_id, base_offset in zip(correlation_ids, base_offsets, strict=True)
            ]
        )


class _Replicated:
    """Requests with acks=-1 that were appended, until all in-sync replicas have them."""

    __slots__ = (
        "_base_offsets",
        "_connection",
        "_correlation_ids",
        "_end_offset",
        "_follow_count",
        "_log_start_offset",
        "_services",
        "plan",
    )

    def __init__(
        self,
        services: Services,
        connection: Connection,
        plan: _Plan,
        correlation_ids: list[int],
        gathered: GatheredAppend,
    ) -> None:
        log = plan.partition.log
        assert log is not None, "what was appended has a log"
        self.plan = plan
        self._services = services
        self._connection = connection
        self._correlation_ids = correlation_ids
        self._base_offsets = gathered.base_offsets
        self._end_offset = gathered.end_offset
        self._follow_count = plan.partition.follow_count
        self._log_start_offset = log.log_start_offset

    def is_settled(self) -> bool:
        """Whether the replicas have all, or never will."""
        return self.plan.partition.acknowledgement(self._end_offset, self._follow_count)[0]

    def answers(self) -> bytes:
        """Return the answers as things stand: what the replicas do not have by now has timed out."""
        partition, plan = self.plan.partition, self.plan
        if partition.acknowledgement(self._end_offset, self._follow_count) == (True, 0):
            return plan.answers(self._correlation_ids, self._base_offsets, self._log_start_offset)
        end_offsets = [*self._base_offsets[1:], self._end_offset]
        return b"".join(map(self._answer, self._correlation_ids, self._base_offsets, end_offsets))

    def _answer(self, correlation_id: int, base_offset: int, end_offset: int) -> bytes:
        plan = self.plan
        is_done, code = plan.partition.acknowledgement(end_offset, self._follow_count)
        part = plan.new_response(base_offset, -1, self._log_start_offset)
        part.error_code = code if is_done else REQUEST_TIMED_OUT
        response = plan.response_of(part)
        tell_leaders(self._services, RequestContext(plan.header, self._connection), response)
        return plan.encode(correlation_id, response)


def _prefix_end(data: bytes, position: int, api_version: int) -> int:
    """Return where the prefix ends that goes on at `position`, behind the client id; 0 where it has another shape.

    With acks -1, 30 s, partition 7 of topic "ticks" (02: one of them, 06: five bytes, 00: no tagged fields; no
    transactional id):

        v9-12   00 00 ffff 00007530 02 06 7469636b73 02 00000007
        v13     00 00 ffff 00007530 02 (the topic id's 16 bytes) 02 00000007
    """
    if position + 30 > len(data) or data[position] or data[position + 1] or data[position + 8] != 2:
        return 0
    if not data[position + 3]:
        return 0  # acks=0, which is not for here
    if api_version >= TOPIC_IDS_SINCE:
        end = position + 30
    else:
        name_bytes = data[position + 9]
        if not 0 < name_bytes < 0x80:
            return 0
        end = position + 14 + name_bytes
    return end if end < len(data) and data[end - 5] == 2 else 0


def _is_plain(data: bytes, position: int) -> bool:
    """Whether the batch whose length is at `position` may be plain: a compressed one is not."""
    start = position + (1 if data[position] < 0x80 else 2)
    return data[start + ATTRIBUTES_POSITION : start + ATTRIBUTES_POSITION + 2] == b"\0\0"


def _gather(plan: _Plan, gathered: GatheredAppend, data: bytes, position: int, most: int) -> tuple[list[int], int]:
    """Gather the requests of one plan from `position` on; return their correlation ids, and where the last one ends."""
    api, prefix = plan.header.api_version, plan.prefix
    length_at = _PREFIX_START + len(prefix)
    limit = len(data)
    correlation_ids: list[int] = []
    while len(correlation_ids) < most and position + length_at + 2 < limit:
        size, key_and_version, correlation_id = _unpack_frame(data, position)
        end = position + 4 + size
        if key_and_version != api or not data.startswith(prefix, position + _PREFIX_START):
            break
        if end > limit or size > MAX_GATHERED_FRAME_BYTES:
            break
        start = position + length_at + 1
        length = data[start - 1]
        if length >= 0x80:
            length += (data[start] << 7) - 0x80
            start += 1
        end_of_batch = end - len(_TAIL)
        if length - 1 != end_of_batch - start or not data.startswith(_TAIL, end_of_batch):
            break
        if not gathered.add(data, start, end_of_batch):
            break
        position = end
        correlation_ids.append(correlation_id)
    return correlation_ids, position
