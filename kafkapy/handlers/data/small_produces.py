"""Fast path for Produce requests that are not large: consecutive ones of a connection and partition, served together.

Such requests of a client are equal byte for byte, except for correlation id and batch. The bytes between these two
(client id, transactional id, acks, time-out, topic, partition) are the prefix, and the key of a plan: its decoded
meaning and a template of the response. So a request costs one comparison, one check of its batch, and its part of one
write: one of one record takes 2,298 bytecode instructions from socket to socket, each that comes with it 580
(tests/simulator/hot_path_counts.json).

`serve` takes requests from the front while each can be appended at once: versions 9 to 13, acks 1 or -1, one topic with
one partition whose leader is this broker, a plain batch (storage/log/coalesced_append.py), and no quota of the client
for it. If they have a transactional id, the batches must be transactional; the first one of a transaction is verified
with a coordinator on this node (transactional_produce.verifier), and served alone. With acks=-1 their responses wait
together for the other replicas. A request to several partitions may be served by wide_produces.py. The first one that
does not qualify there either, valid or not, goes with all after it to handlers/data/produce.py.
Effects and responses are the same on both paths, with one exception: if the disk is full, requests that were coalesced
are refused together.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from kafkapy.errors import ApiError, ProtocolError, StorageError
from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import Connection, RequestContext, Services
from kafkapy.handlers.data.delayed_responses import DelayedResponses
from kafkapy.handlers.data.produce import (
    NO_CURRENT_LEADER,
    NO_RECORD_ERRORS,
    TOPIC_IDS_SINCE,
    VALID_ACKS,
    name_leaders,
    response_of,
)
from kafkapy.handlers.data.wide_produces import WideProduces, encode_response
from kafkapy.protocol.headers import RequestHeader, read_request_header
from kafkapy.protocol.messages.produce_request import ProduceRequest
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkapy.protocol.partial_frame import MAX_COALESCED_FRAME_BYTES
from kafkapy.protocol.serving import Served
from kafkapy.record.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_FLAG
from kafkapy.replication.delayed_produce import REQUEST_TIMED_OUT, PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS, NO_ACKS
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.storage.log.coalesced_append import CoalescedAppend, Verify

FIRST_VERSION: Final = ProduceRequest.FLEXIBLE_FROM
LAST_VERSION: Final = 13
"""The newest version whose layout is the one read here; a newer one is served by produce.py."""
MAX_PLANS: Final = 16_384
"""Client ids times acks, time-outs, versions and partitions (0.7 to 2 KiB each). The cache is cleared when full."""
MIN_SWEEP: Final = 16
"""The next sweep for plans of deleted partitions, which keep logs alive: at twice the plans plus this many."""
MAX_CLIENT_ID_BYTES: Final = 255
"""The maximum client id of a plan, which holds it three times."""
_unpack_frame = Struct(">iIi").unpack_from
"""Size; API key and version as one number, which equals the version because the key is 0; correlation id."""
_unpack_request = Struct(">iIih").unpack_from
"""The same, and the length of the client id."""

_ATTRIBUTES_AT: Final = 1 + ATTRIBUTES_POSITION
"""After a length field of one byte and the batch's start."""
_PREFIX_START: Final = 12
"""After a frame's size, API key, version and correlation id. The prefix ends before the length of the batch."""
_MIN_BYTES: Final = 64
"""No request with a batch is smaller, so this many bytes can be read without a bounds check."""
_TAIL: Final = b"\0\0\0"
"""After the batch: no tagged fields of partition, topic and request."""
_TAIL_BYTES: Final = len(_TAIL)

_PLAIN: Final = b"\0\0"
_TRANSACTIONAL: Final = TRANSACTIONAL_FLAG.to_bytes(2, "big")
"""The attributes of batches that are served here: not compressed, CreateTime, no control batch."""

_OFFSETS: Final = Struct(">qqq")
"""Fields of a response: base offset, log append time, log start offset."""
_NO_OFFSETS: Final = (0x5A5A5A5A5A5A5A5A, -1, 0x5B5B5B5B5B5B5B5B)
"""Placeholders, to find the position of the offsets in an encoded response."""


class SmallProduces:
    """Recognises small requests by their bytes and serves consecutive ones of a connection together."""

    def __init__(self, services: Services, last_version: int = LAST_VERSION) -> None:
        """last_version: the newest that is served; lower if an older release is imitated."""
        assert last_version <= LAST_VERSION, "a newer layout is not read here"
        self._last_version = last_version
        self._services = services
        self._authorizer = services.authorizer
        self._manager = services.replica_manager
        self._wide = WideProduces(services, last_version)
        self._plans: dict[bytes, _KnownProduce] = {}
        self._sweep_at = MIN_SWEEP

    def serve(self, connection: Connection, data: bytes, position: int, most: int) -> Served | None:
        """Serve requests from `position` on. Implements protocol.serving.Coalesce, for Produce frames."""
        plan = self._find(data, position)
        if plan is None:
            return self._wide.serve(connection, data, position)
        quotas = self._services.client_quotas
        if quotas is not None and quotas.has_produce_quota(connection.principal, plan.header.client_id):
            return None
        if not _has_attributes(data, position + _PREFIX_START + len(plan.prefix), plan.attributes):
            return None
        partition, manager = plan.partition, self._manager
        if plan.verify is not None and manager.partitions.log_manager.producer_counts.is_crowded:
            return None  # it may begin a transaction by a new producer, which is counted by its client there
        coalesced = manager.begin_coalesced_append(partition, plan.acks, plan.verify)
        if coalesced is None or not self._is_allowed(connection, plan):
            return None
        correlation_ids, end = _coalesce(plan, coalesced, data, position, most)
        if not correlation_ids:
            return None
        if connection.parked_fetch is not None:
            connection.end_parked_fetch()
        try:
            if not coalesced.write():  # nothing has changed: they are served one by one
                return None
        except (ApiError, StorageError, AssertionError) as error:
            self._log_questions(connection, plan, len(correlation_ids))
            refused = self._refused(plan, correlation_ids, error)
            codes = [refused.error_code] * len(correlation_ids)
            return Served(len(correlation_ids), end, plan.refusals(correlation_ids, refused), None, codes)
        self._log_questions(connection, plan, len(correlation_ids))
        if partition.traffic is not None:
            partition.traffic.count_appends(
                produces=len(correlation_ids),
                size_bytes=coalesced.size_bytes,
                messages=coalesced.end_offset - coalesced.base_offsets[0],
            )
        manager.notify_appended(partition)
        assert partition.log is not None, "what was appended has a log"
        if plan.acks == ALL_ACKS and not partition.is_alone:
            together = _Replicated(self._services, connection, plan, correlation_ids, coalesced)
            if not together.is_final():
                wait = partial(self._wait, together)
                return Served(len(correlation_ids), end, None, wait, together.error_codes)
            return Served(len(correlation_ids), end, together.responses(), None, together.error_codes)
        responses = plan.responses(correlation_ids, coalesced.base_offsets, partition.log.log_start_offset)
        return Served(len(correlation_ids), end, responses)

    def _wait(self, together: "_Replicated", on_responses: Callable[[bytes], None]) -> None:
        """Wait for the replicas, for the requests' time-out at most."""
        partition, timeout_ms = together.plan.partition, max(together.plan.timeout_ms, 0)
        self._manager.wait_for_commit(DelayedResponses(together, on_responses), partition, timeout_ms=timeout_ms)

    def _find(self, data: bytes, position: int) -> "_KnownProduce | None":
        """Return the plan of the request at `position`, or None if handlers/data/produce.py must serve it."""
        bytes_left = len(data) - position
        if bytes_left < _MIN_BYTES:
            return None
        size, version, _, client_id_bytes = _unpack_request(data, position)
        if (
            client_id_bytes > MAX_CLIENT_ID_BYTES
            or not 0 < size <= min(MAX_COALESCED_FRAME_BYTES, bytes_left - 4)
            or not FIRST_VERSION <= version <= self._last_version
        ):
            return None
        end = _prefix_end(data, position + _PREFIX_START + 2 + max(client_id_bytes, 0), version)
        if not 0 < end <= position + size:
            return None
        # The version, and the bytes between client id and batch: equal for all such requests of a client.
        key = data[position + 6 : position + 8] + data[position + _PREFIX_START : end]
        plan = self._plans.get(key)
        if plan is not None and plan.partition.role is not Role.GONE:
            return plan
        plan = self._plan(data[position + 4 : position + 4 + size], data[position + _PREFIX_START : end])
        if plan is None:
            # The plan of a partition that is gone: it would keep the log alive.
            self._plans.pop(key, None)
            return None
        self._remember(key, plan)
        return plan

    def _remember(self, key: bytes, plan: "_KnownProduce") -> None:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        if len(self._plans) >= self._sweep_at:
            self._plans = {key: each for key, each in self._plans.items() if each.partition.role is not Role.GONE}
            self._sweep_at = 2 * len(self._plans) + MIN_SWEEP

    def _plan(self, frame: bytes, prefix: bytes) -> "_KnownProduce | None":
        """Return a new plan for the prefix of a request, or None if the request does not qualify."""
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
        verify = None
        if request.transactional_id is not None:
            # Imported late: many nodes have no transactions.
            from kafkapy.handlers.data.transactional_produce import verifier

            verify = verifier(self._services, header.api_version, request.transactional_id, partition)
        return _KnownProduce(header, prefix, request, partition, topic.name, verify)

    def _is_allowed(self, connection: Connection, plan: "_KnownProduce") -> bool:
        """Check WRITE without an audit log line: requests left to handlers/data/produce.py are authorized there."""
        if self._authorizer.allows_everything:
            return True
        context = RequestContext(plan.header, connection)
        is_allowed = self._authorizer.is_allowed
        return all(is_allowed(context, AclOperation.WRITE, kind, name) for kind, name in plan.resources())

    def _log_questions(self, connection: Connection, plan: "_KnownProduce", request_count: int) -> None:
        """Write an audit log line for each request that was served here."""
        if not self._authorizer.logs_what_it_allows:
            return
        context = RequestContext(plan.header, connection)
        for _ in range(request_count):
            for kind, name in plan.resources():
                self._authorizer.authorize(context, AclOperation.WRITE, kind, name)

    def _refused(self, plan: "_KnownProduce", correlation_ids: list[int], error: Exception) -> PartitionAppend:
        """Return the outcome of each request whose batch could not be written."""
        append = PartitionAppend(plan.partition, b"")
        self._manager.refuse_append(append, error)
        for _ in correlation_ids:
            self._manager.count_refusal(append, error)
        return append


class _KnownProduce:
    """The decoded prefix of requests, and the constant parts of their responses."""

    __slots__ = (
        "_head",
        "_pack",
        "_tail",
        "_topic_name",
        "acks",
        "attributes",
        "header",
        "partition",
        "prefix",
        "timeout_ms",
        "transactional_id",
        "verify",
    )

    def __init__(
        self,
        header: RequestHeader,
        prefix: bytes,
        request: ProduceRequest,
        partition: HostedPartition,
        topic_name: str,
        verify: Verify | None,
    ) -> None:
        """`topic_name` is that of the request, empty if the request has a topic id. verify: see CoalescedAppend."""
        self.header = header
        self.prefix = prefix
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        self.attributes = _PLAIN if request.transactional_id is None else _TRANSACTIONAL
        self.verify = verify
        self.partition = partition
        self._topic_name = topic_name
        response = self.encode(0, self.response_of(self.new_response(*_NO_OFFSETS)))
        self._head, _, self._tail = response[8:].partition(_OFFSETS.pack(*_NO_OFFSETS))
        self._pack = Struct(f">ii{len(self._head)}sqqq{len(self._tail)}s").pack

    def resources(self) -> list[tuple[ResourceType, str]]:
        """Return the resources that the client must be allowed to write, in the order of handlers/data/produce.py."""
        topic = (ResourceType.TOPIC, self.partition.topic_partition.topic)
        if self.transactional_id is None:
            return [topic]
        return [(ResourceType.TRANSACTIONAL_ID, self.transactional_id), topic]

    def new_response(
        self, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> PartitionProduceResponse:
        index = self.partition.topic_partition.partition
        return PartitionProduceResponse(
            index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
            record_errors=NO_RECORD_ERRORS,
            current_leader=NO_CURRENT_LEADER,
        )

    def response_of(self, part: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse(
            [TopicProduceResponse(self._topic_name, topic_id=self.partition.topic_id, partition_responses=[part])]
        )

    def encode(self, correlation_id: int, response: ProduceResponse) -> bytes:
        """Return an encoded response, with size prefix and header."""
        return encode_response(self.header.api_version, correlation_id, response)

    def refusals(self, correlation_ids: list[int], refused: PartitionAppend) -> bytes:
        """Return the encoded responses to requests that have this outcome."""
        response = self.response_of(response_of(refused))
        return b"".join([self.encode(correlation_id, response) for correlation_id in correlation_ids])

    def responses(self, correlation_ids: list[int], base_offsets: list[int], log_start_offset: int) -> bytes:
        """Return the encoded responses to appended requests; log append time is -1 (CreateTime)."""
        pack, head, tail = self._pack, self._head, self._tail
        size = 4 + len(head) + _OFFSETS.size + len(tail)
        return b"".join(
            [
                pack(size, correlation_id, head, base_offset, -1, log_start_offset, tail)
                for correlation_id, base_offset in zip(correlation_ids, base_offsets, strict=True)
            ]
        )


class _Replicated:
    """Appended requests with acks=-1 that wait for all in-sync replicas."""

    __slots__ = (
        "_base_offsets",
        "_connection",
        "_correlation_ids",
        "_end_offset",
        "_follow_count",
        "_log_start_offset",
        "_services",
        "error_codes",
        "plan",
    )

    def __init__(
        self,
        services: Services,
        connection: Connection,
        plan: _KnownProduce,
        correlation_ids: list[int],
        coalesced: CoalescedAppend,
    ) -> None:
        log = plan.partition.log
        assert log is not None, "what was appended has a log"
        self.plan = plan
        self.error_codes: list[int] = []
        """Of the requests, once `responses` has returned; empty if all are replicated."""
        self._services = services
        self._connection = connection
        self._correlation_ids = correlation_ids
        self._base_offsets = coalesced.base_offsets
        self._end_offset = coalesced.end_offset
        self._follow_count = plan.partition.follow_count
        self._log_start_offset = log.log_start_offset

    def is_final(self) -> bool:
        """Whether the in-sync replicas have all records, or cannot get them any more."""
        return self.plan.partition.acknowledgement(self._end_offset, self._follow_count)[0]

    def responses(self) -> bytes:
        """Return the encoded responses in the current state; requests that are not replicated yet have timed out."""
        partition, plan = self.plan.partition, self.plan
        if partition.acknowledgement(self._end_offset, self._follow_count) == (True, 0):
            return plan.responses(self._correlation_ids, self._base_offsets, self._log_start_offset)
        end_offsets = [*self._base_offsets[1:], self._end_offset]
        return b"".join(map(self._response, self._correlation_ids, self._base_offsets, end_offsets))

    def _response(self, correlation_id: int, base_offset: int, end_offset: int) -> bytes:
        plan = self.plan
        is_done, code = plan.partition.acknowledgement(end_offset, self._follow_count)
        part = plan.new_response(base_offset, -1, self._log_start_offset)
        part.error_code = code if is_done else REQUEST_TIMED_OUT
        self.error_codes.append(part.error_code)
        response = plan.response_of(part)
        name_leaders(self._services, RequestContext(plan.header, self._connection), response)
        return plan.encode(correlation_id, response)


def _prefix_end(data: bytes, position: int, api_version: int) -> int:
    """Return the end of the prefix whose rest starts at `position`, after the client id; 0 for another layout.

    With acks -1, 30 s, partition 7 of topic "ticks" (02: one of them, 06: five bytes, 00: no tagged fields, then no
    transactional id) and with transactional id "t":

        v9-12   00 00 ffff 00007530 02 06 7469636b73 02 00000007
        v13     00 00 ffff 00007530 02 (the topic id's 16 bytes) 02 00000007
        v13     00 02 74 ffff 00007530 02 (the topic id's 16 bytes) 02 00000007
    """
    if position + 30 > len(data) or data[position]:
        return 0
    if id_bytes := data[position + 1]:
        position += id_bytes - 1
        if not 1 < id_bytes < 0x80 or position + 30 > len(data):
            return 0
    if data[position + 8] != 2:
        return 0
    if not data[position + 3]:
        return 0  # acks=0 is served by handlers/data/produce.py
    if api_version >= TOPIC_IDS_SINCE:
        end = position + 30
    else:
        name_bytes = data[position + 9]
        if not 0 < name_bytes < 0x80:
            return 0
        end = position + 14 + name_bytes
    return end if end + 1 < len(data) and data[end - 5] == 2 else 0


def _has_attributes(data: bytes, position: int, attributes: bytes) -> bool:
    """Whether the batch whose length is at `position` has these attributes."""
    if data[position] >= 0x80:
        position += 1 if data[position + 1] < 0x80 else 2
    return data.startswith(attributes, position + _ATTRIBUTES_AT)


def _coalesce(
    plan: _KnownProduce, coalesced: CoalescedAppend, data: bytes, position: int, most: int
) -> tuple[list[int], int]:
    """Add the requests of one plan from `position` on; return their correlation ids, and the end of the last one."""
    api, prefix = plan.header.api_version, plan.prefix
    length_at = _PREFIX_START + len(prefix)
    limit = len(data)
    correlation_ids: list[int] = []
    while len(correlation_ids) < most and position + length_at + 2 < limit:
        size, key_and_version, correlation_id = _unpack_frame(data, position)
        end = position + 4 + size
        if key_and_version != api or not data.startswith(prefix, position + _PREFIX_START):
            break
        if end > limit or size > MAX_COALESCED_FRAME_BYTES:
            break
        start = position + length_at + 1
        length = data[start - 1]
        if length >= 0x80:  # an unsigned varint of up to three bytes; as compact records may be null, it is one more
            length += (data[start] << 7) - 0x80
            if data[start] >= 0x80:
                start += 1
                length += (data[start] << 14) - 0x4000
            start += 1
        end_of_batch = end - _TAIL_BYTES
        if length - 1 != end_of_batch - start or not data.startswith(_TAIL, end_of_batch):
            break
        if not coalesced.add(data, start, end_of_batch):
            break
        position = end
        correlation_ids.append(correlation_id)
    return correlation_ids, position
