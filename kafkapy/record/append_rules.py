"""The data types of an append to a log: its origin, the validation rules, and the validated records."""

from collections.abc import Callable
from enum import Enum

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import CREATE_TIME
from kafkapy.record.compression import MAX_APPENDED_BYTES, MAX_RECOMPRESSED_BYTES, NAMES, NONE
from kafkapy.seams import ReadableBuffer
from kafkapy.types import INT32_MAX, INT64_MAX


class AppendOrigin(Enum):
    """The origin of an append, which determines what is checked."""

    CLIENT = "client"
    """A producer: everything is checked."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator: control records are allowed and sequence numbers are not checked."""

    RAFT_LEADER = "raft_leader"
    """The quorum's leader, which has assigned offsets and epoch: only epoch, size, CRC and order are checked."""

    REPLICATION = "replication"
    """A follower that fetched from its leader: CRC and order are checked."""


def no_clock() -> int:
    """The clock of rules whose conversions are not timed: always 0."""
    return 0


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """The rules for an append, from the topic's config and the append's origin."""

    topic_partition: str = "?"
    """Used in error messages."""

    origin: AppendOrigin = AppendOrigin.CLIENT
    is_compacted: bool = False
    compression_type: str = "producer"
    """The topic's compression.type: "producer", "uncompressed" or a codec's name."""

    compression_level: int | None = None
    """The compression level of that codec, None for Kafka's default."""

    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = MAX_APPENDED_BYTES
    """For a batch that keeps its codec; see `max_inflated_bytes`."""

    max_record_bytes: int = INT32_MAX
    """For each record of a compressed batch, decompressed (max.decompressed.message.bytes)."""

    now_ns: Callable[[], int] = no_clock
    """Times conversions, for a metric."""

    def target_codec(self, source_codec: int) -> int:
        if self.compression_type == "producer":
            return source_codec
        return NONE if self.compression_type == "uncompressed" else NAMES.index(self.compression_type)

    def max_inflated_bytes(self, source_codec: int, target_codec: int) -> int:
        """Return how many bytes a batch may inflate to.

        Deviation: Apache Kafka has no bound. Here there is one, because a few KiB could fill the memory. A batch that
        is compressed again in the topic's compression.type may inflate to 21 MiB, or to max_message_bytes if that is
        more; one that keeps its codec to max_decompressed_bytes.
        """
        if source_codec == target_codec:
            return self.max_decompressed_bytes
        return min(self.max_decompressed_bytes, max(self.max_message_bytes, MAX_RECOMPRESSED_BYTES))


class BatchSpan(NamedTuple):
    """A validated batch. `position` is its start in the concatenated `data` of its ValidatedRecords."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    record_count: int
    leader_epoch: int


class ValidationStats(NamedTuple):
    """The memory and time of validating a batch beyond a walk over it (Kafka's RecordValidationStats).

    temporary_bytes: of its decompressed records with a header, and of its re-encoded records with another.
    converted_records: re-encoded in the topic's codec; 0 if the batch was kept.
    """

    temporary_bytes: int
    converted_records: int = 0
    conversion_ns: int = 0


class ValidatedRecords(NamedTuple):
    """Records ready to be appended: complete batches in order.

    `log_append_time_ms` is -1 unless the topic uses LogAppendTime. `stats`: of a single batch that is compressed or
    re-encoded, else None.
    """

    data: list[ReadableBuffer]
    batches: list[BatchSpan]
    size_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    record_count: int
    log_append_time_ms: int
    stats: ValidationStats | None = None
