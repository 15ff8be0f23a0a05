"""Fast path for a Produce request to several partitions of one topic, as producers send them: no objects per partition.

The bytes before the number of partitions (client id, acks, time-out, topic) are equal in all such requests of a client.
They are the key of a plan: their decoded meaning, and the constant parts of the response. Of each partition four fields
are read from the frame; its batch is checked and written from where it was received.

`serve` takes a request of versions 9 to 13 with acks 1 or -1, without a transactional id, with 2 to MAX_PARTITIONS
different partitions of one topic that are all led here, and a batch for each that says of itself that it is plain
(record/small_batch.py). Any other request, also one of a client with a quota, is served by handlers/data/produce.py.
Effects and responses are the same on both paths. A batch that turns out not to be plain has its outcome from
append_records. With acks=-1 the response waits for the other replicas.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, TypeAlias

from kafkapy.errors import ApiError, ProtocolError, StorageError
from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import Connection, RequestContext, Services
from kafkapy.handlers.data.produce import (
    NO_CURRENT_LEADER,
    NO_RECORD_ERRORS,
    TOPIC_IDS_SINCE,
    VALID_ACKS,
    name_leaders,
    response_of,
)
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.messages.produce_request import ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkapy.protocol.partial_frame import MAX_JOINED_FRAME_BYTES
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import Served
from kafkapy.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from kafkapy.record.leader_batch import LIGHT_SINGLE_RECORDS
from kafkapy.record.small_batch import PLAIN, HeaderFields, unpack_header
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.plain_appends import append_plain_batch, may_append_plain
from kafkapy.replication.replica_manager import ALL_ACKS, NO_ACKS
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.storage.log.plain_append import MAX_PLAIN_BYTES

FIRST_VERSION: Final = ProduceRequest.FLEXIBLE_FROM
MAX_PARTITIONS: Final = 32
"""Of a request: some half a millisecond of work. As many elements are decoded without being counted elsewhere."""
NO_ERRORS: Final = (0,) * MAX_PARTITIONS
MAX_PLANS: Final = 1024
"""Client ids times topics, acks, time-outs and versions (2 KiB each). The cache is cleared when full."""
MAX_CLIENT_ID_BYTES: Final = 255
"""The maximum client id of a plan, which holds it three times."""

_unpack_request = Struct(">iIih").unpack_from
"""Size; API key and version as one number, which equals the version because the key is 0; correlation id; length of the
client id."""
_unpack_index = Struct(">iB").unpack_from
"""Of a partition: its index, the first byte of the length of its records."""
_pack_start = Struct(">ii").pack
"""Of a response: size, correlation id."""
_PREFIX_START: Final = 12
"""After a frame's size, API key, version and correlation id. The prefix ends before the number of partitions."""
_MIN_BYTES: Final = 64
"""No request with two batches is smaller, so the bytes before the topic can be read without a bounds check."""
_END_TAGS: Final = b"\0\0"
"""No tagged fields of topic and request."""
_NO_PARTITIONS: Final = b"\1" + _END_TAGS
"""The end of a request without partitions: those of a hostile one may have any number of tagged fields."""

_INDEX: Final = 0x5C5C5C5C
_BASE_OFFSET: Final = 0x5A5A5A5A5A5A5A5A
_LOG_START_OFFSET: Final = 0x5B5B5B5B5B5B5B5B
"""Placeholders, to find the positions of index and offsets in an encoded response."""
_OFFSETS: Final = Struct(">qqq").pack(_BASE_OFFSET, -1, _LOG_START_OFFSET)
"""Fields of a response: base offset, log append time, log start offset."""

_Batch: TypeAlias = tuple[HostedPartition, int, int, HeaderFields]
"""The partition of a batch, its start and end in the received bytes, its header."""
_Outcome: TypeAlias = tuple[int, int, int] | PartitionAppend
"""Index, base offset and log start offset of an append that is final; else the append."""


def encode_response(api_version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    """Return an encoded response, with size prefix and header."""
    out = Writer()
    write_response_header(out, ProduceRequest.API_KEY, api_version, correlation_id)
    response.write(out, api_version)
    return len(out).to_bytes(4, "big") + bytes(out)


class WideProduces:
    """Recognises requests to several partitions by their bytes, and serves them one at a time."""

    def __init__(self, services: Services, last_version: int) -> None:
        """last_version: the newest that is served."""
        self._last_version = last_version
        self._services = services
        self._authorizer = services.authorizer
        self._manager = services.replica_manager
        self._plans: dict[bytes, _KnownTopic] = {}

    def serve(self, connection: Connection, data: bytes, position: int) -> Served | None:
        """Serve the Produce request at `position`, or return None, with nothing changed."""
        manager = self._manager
        if len(data) - position < _MIN_BYTES:
            return None
        size, version, correlation_id, client_id_bytes = _unpack_request(data, position)
        end = position + 4 + size
        if (
            client_id_bytes > MAX_CLIENT_ID_BYTES
            or not 0 < size <= MAX_JOINED_FRAME_BYTES
            or end > len(data)
            or not FIRST_VERSION <= version <= self._last_version
        ):
            return None
        count_at = _prefix_end(data, position + _PREFIX_START + 2 + max(client_id_bytes, 0), version)
        if not 0 < count_at < end or not 2 <= data[count_at] - 1 <= MAX_PARTITIONS:
            return None
        # The version, and the bytes between client id and number of partitions.
        key = data[position + 6 : position + 8] + data[position + _PREFIX_START : count_at]
        plan = self._plans.get(key) or self._plan(key, data[position + 4 : count_at] + _NO_PARTITIONS)
        if plan is None or not self._may_serve(connection, plan):
            return None
        batches = self._batches(plan, data, count_at, end)
        if batches is None:
            return None
        if connection.parked_fetch is not None:
            connection.end_parked_fetch()
        if self._authorizer.logs_what_it_allows:
            self._log_question(connection, plan, len(batches))
        outcomes = self._append(plan, data, batches)
        rows = [plan.row(*each) for each in outcomes if isinstance(each, tuple)]
        if len(rows) == len(outcomes):
            return Served(1, end, plan.response(correlation_id, rows), None, NO_ERRORS[: len(rows)])
        codes: list[int] = []
        respond = partial(self._respond, connection, plan, correlation_id, outcomes, codes)
        appends = [each for each in outcomes if isinstance(each, PartitionAppend)]
        # with acks=1 no append waits, also one that append_records has made
        pending = [append for append in appends if not append.is_final()] if plan.acks == ALL_ACKS else []
        if not pending:
            return Served(1, end, respond(), None, codes)

        def wait(on_responses: Callable[[bytes], None]) -> None:
            manager.wait_for_replicas(pending, timeout_ms=plan.timeout_ms, on_done=lambda: on_responses(respond()))

        return Served(1, end, None, wait, codes)

    def _respond(
        self,
        connection: Connection,
        plan: "_KnownTopic",
        correlation_id: int,
        outcomes: "list[_Outcome]",
        codes: list[int],
    ) -> bytes:
        """Return the encoded response; its error codes are added to `codes`."""
        parts = list(map(_part, outcomes))
        codes += [part.error_code for part in parts]
        response = plan.response_of(parts)
        name_leaders(self._services, RequestContext(plan.header, connection), response)
        return encode_response(plan.header.api_version, correlation_id, response)

    def _may_serve(self, connection: Connection, plan: "_KnownTopic") -> bool:
        """Whether the client may write to the topic, and nothing has to be counted for it.

        WRITE is checked without an audit log line: requests left to handlers/data/produce.py are authorized there.
        """
        quotas = self._services.client_quotas
        if quotas is not None and quotas.has_produce_quota(connection.principal, plan.header.client_id):
            return False
        if self._manager.partitions.log_manager.producer_counts.is_crowded:
            return False  # then new producers are counted by their client
        authorizer = self._authorizer
        return authorizer.allows_everything or authorizer.is_allowed(
            RequestContext(plan.header, connection), AclOperation.WRITE, ResourceType.TOPIC, plan.authorized_name
        )

    def _log_question(self, connection: Connection, plan: "_KnownTopic", partition_count: int) -> None:
        """Write the audit log line of a request that is served here."""
        self._authorizer.authorize(
            RequestContext(plan.header, connection),
            AclOperation.WRITE,
            ResourceType.TOPIC,
            plan.authorized_name,
            reference_count=partition_count,
        )

    def _plan(self, key: bytes, frame: bytes) -> "_KnownTopic | None":
        """Return a new plan for requests that begin like this one without partitions, None if they do not qualify."""
        try:
            header, position = read_request_header(frame)
            request, _ = ProduceRequest.read(frame, position, header.api_version)
        except ProtocolError:
            return None
        if request.acks == NO_ACKS or request.acks not in VALID_ACKS:
            return None
        (topic,) = request.topic_data
        name = topic.name
        if header.api_version >= TOPIC_IDS_SINCE:
            image = self._manager.partitions.newest_image.topics.by_id.get(topic.topic_id)
            if image is None:
                return None
            name = image.name
        if is_internal(name):
            return None
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        plan = self._plans[key] = _KnownTopic(header, request.acks, request.timeout_ms, topic, name)
        return plan

    def _batches(self, plan: "_KnownTopic", data: bytes, count_at: int, end: int) -> list[_Batch] | None:
        """Return the batches of a request whose partitions begin after `count_at`, None if one does not qualify.

        Partition 7 with a batch of 300 bytes: 00000007 ad02 (one more, as it may be null), the batch, 00 (no tags).
        """
        partitions = self._manager.partitions
        has_ids = plan.header.api_version >= TOPIC_IDS_SINCE
        find = partitions.finder_by_id(plan.topic_id) if has_ids else partitions.finder(plan.topic_name)
        batches: list[_Batch] = []
        seen: set[int] = set()
        at, limit = count_at + 1, end - len(_END_TAGS)
        for _ in range(data[count_at] - 1):
            if at + HEADER_BYTES >= limit:
                return None
            index, length = _unpack_index(data, at)
            start = at + 5
            if length >= 0x80:  # an unsigned varint of up to three bytes
                length += (data[start] << 7) - 0x80
                if data[start] >= 0x80:
                    start += 1
                    length += (data[start] << 14) - 0x4000
                start += 1
            at = start + length - 1
            if not HEADER_BYTES < length - 1 <= MAX_PLAIN_BYTES or at >= limit or data[at] or index in seen:
                return None
            partition = find(index)
            header = unpack_header(data, start)
            record_count = header[12]
            if (
                partition is None
                or header[5] != PLAIN
                or header[3] != 2
                or header[1] != length - 1 - LOG_OVERHEAD_BYTES
                or not 0 < record_count <= LIGHT_SINGLE_RECORDS  # more would be refused by a worker
                or not may_append_plain(partition, plan.acks, record_count)
            ):
                return None
            seen.add(index)
            batches.append((partition, start, at, header))
            at += 1
        return batches if data[at:end] == _END_TAGS else None

    def _append(self, plan: "_KnownTopic", data: bytes, batches: list[_Batch]) -> list[_Outcome]:
        """Append each batch; one that fails does not keep the others from being appended."""
        # a tuple for what is final, as nearly all are: a PartitionAppend has fifteen fields, for what is not
        manager = self._manager
        now_ms = self._services.clock.wall_ms()
        outcomes: list[_Outcome] = []
        for partition, start, end, header in batches:
            try:
                base_offset = append_plain_batch(manager, partition, data, start, end, header, now_ms)
            except (ApiError, StorageError, AssertionError) as error:
                append = PartitionAppend(partition, data[start:end])
                manager.refuse_append(append, error)
                manager.count_refusal(append, error)
                append.records = b""  # the others may wait for replicas
                outcomes.append(append)
                continue
            if base_offset < 0:
                outcomes.append(self._append_as_others(plan, partition, bytearray(data[start:end])))
                continue
            log = partition.log
            assert log is not None, "what was appended has a log"
            if plan.acks == ALL_ACKS and not partition.is_alone:
                append = PartitionAppend(partition, b"")
                append.on_appended(base_offset, base_offset + header[12], log.log_start_offset)
                outcomes.append(append)
            else:
                outcomes.append((partition.topic_partition.partition, base_offset, log.log_start_offset))
        return outcomes

    def _append_as_others(self, plan: "_KnownTopic", partition: HostedPartition, records: bytearray) -> PartitionAppend:
        """Append a batch that is not plain, or is refused, or a duplicate."""
        append = PartitionAppend(partition, records)
        self._manager.append_records((append,), required_acks=plan.acks)
        assert append.worker_check is None, f"{partition.topic_partition}: few plain records need no worker"
        assert not self._manager.pending_flushes, f"{partition.topic_partition}: a response has to wait for a flush"
        append.records = b""  # it may wait for replicas
        return append


class _KnownTopic:
    """The decoded prefix of requests, and the constant parts of their responses."""

    __slots__ = (
        "_after",
        "_before",
        "_head",
        "_pack",
        "_tail",
        "acks",
        "authorized_name",
        "header",
        "timeout_ms",
        "topic_id",
        "topic_name",
    )

    def __init__(self, header: RequestHeader, acks: int, timeout_ms: int, topic: TopicProduceData, name: str) -> None:
        """`name`: that of the topic, also if the request has its id."""
        self.header = header
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_name = topic.name
        self.topic_id = topic.topic_id
        self.authorized_name = name
        part = _new_part(_INDEX, _BASE_OFFSET, _LOG_START_OFFSET)
        one = encode_response(header.api_version, 0, self.response_of([part]))
        two = encode_response(header.api_version, 0, self.response_of([part, part]))
        row_at, row_bytes = one.rindex(_INDEX.to_bytes(4, "big")), len(two) - len(one)
        self._head = one[8 : row_at - 1]
        """Up to the number of partitions, which is one byte."""
        self._before, _, self._after = one[row_at + 4 : row_at + row_bytes].partition(_OFFSETS)
        self._tail = one[row_at + row_bytes :]
        self._pack = Struct(f">i{len(self._before)}sqqq{len(self._after)}s").pack

    def row(self, index: int, base_offset: int, log_start_offset: int) -> bytes:
        """Return the encoded part of an appended batch; log append time is -1 (CreateTime)."""
        return self._pack(index, self._before, base_offset, -1, log_start_offset, self._after)

    def response(self, correlation_id: int, rows: list[bytes]) -> bytes:
        """Return the encoded response to a request whose batches are all appended."""
        end = b"".join((self._head, bytes((len(rows) + 1,)), *rows, self._tail))
        return _pack_start(4 + len(end), correlation_id) + end

    def response_of(self, parts: list[PartitionProduceResponse]) -> ProduceResponse:
        topic = TopicProduceResponse(self.topic_name, topic_id=self.topic_id, partition_responses=parts)
        return ProduceResponse([topic])


def _part(outcome: _Outcome) -> PartitionProduceResponse:
    """Return the part of the response of a partition, if not all parts are rows."""
    return response_of(outcome) if isinstance(outcome, PartitionAppend) else _new_part(*outcome)


def _new_part(index: int, base_offset: int, log_start_offset: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index,
        base_offset=base_offset,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=NO_RECORD_ERRORS,
        current_leader=NO_CURRENT_LEADER,
    )


def _prefix_end(data: bytes, position: int, api_version: int) -> int:
    """Return the position of the number of partitions; 0 for another layout.

    The rest of the header starts at `position`, after the client id. With acks -1, 30 s and topic "ticks" (02: one of
    them, 06: five bytes, 00: no tagged fields, then no transactional id):

        v9-12   00 00 ffff 00007530 02 06 7469636b73
        v13     00 00 ffff 00007530 02 (the topic id's 16 bytes)
    """
    if position + 25 >= len(data) or data[position] or data[position + 1] or data[position + 8] != 2:
        return 0
    if not data[position + 3]:
        return 0  # acks=0 is served by handlers/data/produce.py
    if api_version >= TOPIC_IDS_SINCE:
        return position + 25
    name_bytes = data[position + 9]
    return position + 9 + name_bytes if 0 < name_bytes < 0x80 else 0
