"""Reading the records of a fetch, partition by partition.

The limits are KIP-74's: the first partition with records returns at least one batch, whatever its size; after that,
the partition's limit and the rest of the response's limit apply. The outcome of a partition may be an error. Regions
that were read are pinned: if they are not sent, the caller must call `release`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.partition_read import NO_RECORDS, FetchPosition, PartitionRead, failed_read
from kafkapy.seams import FileRegion
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.replication.fetch_session import FetchedPartition
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.replication")

KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)


class FetchRead:
    """One pass over the partitions of a fetch. `read` may have to be called again after warming a file."""

    __slots__ = (
        "_bytes_left",
        "_cold_log",
        "_is_held_back",
        "_isolation",
        "_partitions",
        "_reads_followers",
        "bytes_read",
        "is_full",
        "must_respond",
        "results",
    )

    _cold_log: "Log | None"
    """The log to be warmed. Kept, because the partition may have another log by the end of the warming."""

    def __init__(
        self,
        partitions: Sequence[tuple["FetchedPartition", "HostedPartition"]],
        *,
        isolation: FetchIsolation,
        max_bytes: int,
        reads_followers: bool = False,
        is_held_back: "Callable[[HostedPartition], bool] | None" = None,
    ) -> None:
        """`reads_followers`: the reader accepts a follower of the partition (KIP-392).

        `is_held_back(partition)`: whether a throttle denies records of the partition to the reading follower now.
        """
        self._partitions = [*partitions]
        self._is_held_back = is_held_back
        self._reads_followers = reads_followers
        self._isolation = isolation
        self._bytes_left = max_bytes
        self.results: list[PartitionRead] = []
        """In the order of the partitions."""
        self.bytes_read = 0
        self.is_full = False
        """Whether the response has no room for the next batch of a partition."""
        self.must_respond = False
        """Whether a partition failed or diverges: the fetch must be answered at once."""

    def add(self, partitions: Sequence[tuple["FetchedPartition", "HostedPartition"]]) -> None:
        """Add partitions that `read` continues with."""
        self._partitions += partitions

    def read(self) -> NeedsWarming | None:
        """Read the remaining partitions. Returns None when done, else a region to warm before the next call."""
        for requested, partition in self._partitions[len(self.results) :]:
            try:
                read = self._read_partition(requested, partition)
            except NeedsWarming as cold:
                self._cold_log = partition.log
                return cold
            except ApiError as error:
                read = failed_read(error.code)
            except StorageError:
                read = failed_read(KAFKA_STORAGE_ERROR)
            except AssertionError:
                logger.exception(
                    "Taking partition %s offline until the next start: a read violated an invariant",
                    partition.topic_partition,
                )
                partition.go_offline()
                read = failed_read(UNKNOWN_SERVER_ERROR)
            if read.error_code:
                self.must_respond = True
            self.results.append(read)
        return None

    def fail_next(self, error: OSError) -> None:
        """Report that warming failed: the partition gets KAFKA_STORAGE_ERROR, its log directory is marked failed."""
        assert len(self.results) < len(self._partitions), "what was warmed belongs to a partition that is not read yet"
        _, partition = self._partitions[len(self.results)]
        if self._cold_log is not None:
            self._cold_log.log_dir.handle_os_error(error, f"reading {partition.topic_partition}")
        self.results.append(failed_read(KAFKA_STORAGE_ERROR))
        self.must_respond = True

    def release(self) -> None:
        """Unpin all regions that were read and will not be sent."""
        for read in self.results:
            read.release()

    def _read_partition(self, requested: "FetchedPartition", partition: "HostedPartition") -> PartitionRead:
        request = requested.request
        code = partition.check_leader(request.current_leader_epoch)
        if code and self._reads_followers:
            code = partition.check_readable(request.current_leader_epoch)
        log = partition.log
        if code or log is None:
            return failed_read(code or KAFKA_STORAGE_ERROR)
        if request.last_fetched_epoch >= 0:
            diverging = _divergence(log, request)
            if diverging is not None:
                self.must_respond = True
                return PartitionRead(
                    0, log.high_watermark, log.last_stable_offset, log.log_start_offset, NO_RECORDS, None, diverging
                )
        # A full or throttled response still says how far each partition is. An offset that the log lacks is not passed
        # over: the reader has to learn that it is out of range.
        is_nothing_to_read = request.fetch_offset == end_offset(log, self._isolation) or (
            (
                (self._bytes_left == 0 and self.bytes_read > 0)
                or (self._is_held_back is not None and self._is_held_back(partition))
            )
            and _has_offset(log, request)
        )
        if is_nothing_to_read and not log.is_offline:  # reading an offline log makes the error
            aborted: list[tuple[int, int]] | None = [] if self._isolation is FetchIsolation.TXN_COMMITTED else None
            return PartitionRead(
                0, log.high_watermark, log.last_stable_offset, log.log_start_offset, NO_RECORDS, aborted
            )
        return self._read_records(log, request)

    def _read_records(self, log: "Log", request: FetchPosition) -> PartitionRead:
        max_bytes = request.partition_max_bytes
        read = log.read(
            request.fetch_offset,
            max_bytes if max_bytes < self._bytes_left else self._bytes_left,
            isolation=self._isolation,
            # KIP-74: the first batch of a response comes whole, however large, so that a consumer gets past it.
            min_one_batch=self.bytes_read == 0,
        )
        region: FileRegion | None = read.region
        if region is None:
            # Nothing was read: perhaps only because of the room that the response has left.
            self.is_full |= self._bytes_left < max_bytes
        else:
            self.bytes_read += region.length
            self._bytes_left = max(self._bytes_left - region.length, 0)
            self.is_full |= self._bytes_left == 0
        aborted = read.aborted_transactions
        return PartitionRead(
            0,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            NO_RECORDS if region is None else region,
            None if aborted is None else sorted_aborts(aborted),
        )


def _divergence(log: "Log", request: FetchPosition) -> OffsetAndEpoch | None:
    """Return where the reader's log diverges from this one, None if it does not (KIP-595)."""
    last_fetched_epoch, fetch_offset = request.last_fetched_epoch, request.fetch_offset
    found = log.end_offset_for_epoch(last_fetched_epoch)
    if found is None or fetch_offset < log.log_start_offset:
        message = f"offset {fetch_offset} at epoch {last_fetched_epoch} of {log.topic_partition}"
        raise ApiError(OFFSET_OUT_OF_RANGE, message)
    if found.leader_epoch < last_fetched_epoch or found.offset < fetch_offset:
        return found
    return None


def _has_offset(log: "Log", request: FetchPosition) -> bool:
    return log.log_start_offset <= request.fetch_offset <= log.log_end_offset


def sorted_aborts(aborted: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """Return (first offset, producer id) of aborted transactions, sorted by first offset, as clients require."""
    if not aborted:
        return []
    return sorted((first_offset, producer_id) for producer_id, first_offset, *_ in aborted)


def available_bytes(
    partition: "HostedPartition",
    requested: "FetchedPartition",
    isolation: FetchIsolation,
    *,
    reads_followers: bool = False,
) -> int | None:
    """Return how many bytes a read would return now, None if a waiting fetch should be answered at once.

    None if the partition cannot be read, if the read would have to wait for the disk, or if it stops at the end of an
    older segment, which will not grow.
    """
    request = requested.request
    log = partition.log
    check = partition.check_readable if reads_followers else partition.check_leader
    if check(request.current_leader_epoch) or log is None:
        return None
    limit = end_offset(log, isolation)
    if request.fetch_offset == limit:
        return 0
    # below the log's end the limit will get there; a fetch beyond it is answered at once, with its error
    if request.fetch_offset > limit:
        return 0 if isolation is not FetchIsolation.LOG_END and request.fetch_offset <= log.log_end_offset else None
    try:
        read = log.read(request.fetch_offset, request.partition_max_bytes, isolation=isolation)
    except (NeedsWarming, ApiError, StorageError):
        return None
    if read.region is None:
        return 0
    read.region.release()
    is_older_segment = read.size_bytes < request.partition_max_bytes and read.next_offset != limit
    return None if is_older_segment else read.size_bytes


def end_offset(log: "Log", isolation: FetchIsolation) -> int:
    """Return the offset up to which (exclusive) a reader may read."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset
