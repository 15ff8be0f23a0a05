"""The reading of a ShareFetch, in turns of the loop: hold share partitions with records, read them, acquire.

If no share partition has records, it waits for one (runtime/share/share_wait.py). To hold a share partition excludes
other fetches from it.

Deviation: Apache Kafka acquires records also for a fetch whose session ended while it waited, for example because its
connection closed. Here it acquires none, because no member could read them until their locks time out.

Deviation: Apache Kafka responds without records to a fetch whose offset the log no longer has, and the client repeats
it. Here the read is repeated from the log's start, because the client would ask for nothing else.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import completion, warm
from kafkapy.handlers.share.share_fetch_wire import Fetched, FetchedShare
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_fetch_request import ShareFetchRequest
from kafkapy.runtime.share.batch_headers import HeaderScan
from kafkapy.runtime.share.in_use import NO_LEADER, CallbackTimer, InUse
from kafkapy.runtime.share.share_partitions import SharePartitions
from kafkapy.runtime.share.share_wait import ShareWait
from kafkapy.runtime.turns import Walk
from kafkapy.seams import FileRegion
from kafkapy.share.fetched import AbortedTransaction, AcquiredRecords, AcquireLimits, FetchedRecords
from kafkapy.share.pending_write import Refusal
from kafkapy.share.session import SessionKey
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation, LogRead

HEADERS_AT_ONCE: Final = 200
"""Headers of batches that are read before other requests get a turn: half a millisecond."""
STEPS_OF_PARTITION: Final = 5
"""Reading a share partition counts as so many steps of a turn (Turn.is_over), acquiring from it as many: 50 us."""
BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1
"""The acquire mode in which max_records is never exceeded; 0 is batch-optimised (KIP-1206)."""


class ShareReading:
    """One ShareFetch over the share partitions that it can use."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: ShareFetchRequest,
        key: SessionKey,
        shares: SharePartitions,
        partitions: list[InUse],
        has_session_ended: Callable[[], bool],
    ) -> None:
        settings = shares.settings(key.group_id)
        self._key = key
        self._shares = shares
        self._counts = None if shares.counts is None else shares.counts.of_group(key.group_id)
        self._max_record_locks = settings.partition.max_record_locks
        self._services = services
        self._request = request
        self._partitions = partitions
        self._has_session_ended = has_session_ended
        self._isolation = FetchIsolation.TXN_COMMITTED if settings.reads_committed else FetchIsolation.HIGH_WATERMARK
        self._max_bytes = min(request.max_bytes, services.config.node.fetch_max_bytes)
        if context.meter is not None:
            self._max_bytes = context.meter.max_fetch_bytes(self._max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._records_left = request.max_records
        self._fetched: Fetched = {}
        self._seen: dict[InUse, tuple[int, int]] = {}
        """Readable offsets of share partitions that had too few records: they are read again when there are more."""

    async def run(self, way: Walk, *, must_respond: bool) -> Fetched:
        """Return the acquired records and errors. must_respond: the response has other content, so do not wait."""
        clock = self._services.clock
        began_ms = entered_ms = clock.monotonic_ms()
        deadline_ms = began_ms + (0 if must_respond else max(self._request.max_wait_ms, 0))
        try:
            while True:
                is_last = clock.monotonic_ms() >= deadline_ms
                future, on_ready = completion()
                # The last attempt acquires also less than min_bytes.
                seen = {} if is_last else self._seen
                needs_records = self._min_bytes > 0
                wait = ShareWait(self._partitions, self._isolation, seen, on_ready, needs_records=needs_records)
                try:
                    await wait.look(way)
                    if not wait.is_ready and not is_last:
                        await self._wait(future, on_ready, deadline_ms)
                        way.begin_anew()
                    if wait.held:
                        await wait.hold_others(way)
                    if self._has_session_ended():
                        return self._fetched
                    is_last |= wait.is_enough
                    began_ms = self._count_acquire(began_ms, has_ended=bool(wait.held) or is_last)
                    held_count = len(wait.held)
                    has_answer = await self._acquire(wait.held, way, is_last=is_last)
                    if has_answer or await self._record_failures(way) or is_last:
                        has_expired = is_last and not wait.is_enough and deadline_ms > entered_ms
                        self._count_end(held_count, has_expired=has_expired)
                        return self._fetched
                finally:
                    wait.end()
        except BaseException:
            for each in self._fetched.values():
                each.release()
            raise

    def _count_acquire(self, began_ms: int, *, has_ended: bool) -> int:
        """Count the time since began_ms, for which share partitions were awaited; return the start of the next wait."""
        if not has_ended:
            return began_ms
        now_ms = self._services.clock.monotonic_ms()
        if self._counts is not None:
            self._counts.record_acquire(now_ms - began_ms)
        return now_ms

    def _count_end(self, held_count: int, *, has_expired: bool) -> None:
        if self._counts is None or self._shares.counts is None:
            return
        self._counts.record_ratio(held_count, len(self._partitions))
        self._shares.counts.expired_fetches += has_expired

    async def _wait(self, ready: "asyncio.Future[None]", on_ready: Callable[[], None], deadline_ms: int) -> None:
        """Wait until a share partition is held or has failed, or the time is over."""
        timer = CallbackTimer(on_ready)
        self._shares.wheel.add(timer, deadline_ms)
        try:
            await ready
        finally:
            timer.cancel()

    def _refuse(self, in_use: InUse, code: ErrorCode) -> None:
        self._fetched[in_use.partition.key.topic_partition] = FetchedShare(Refusal(code, None))

    async def _record_failures(self, way: Walk) -> bool:
        """Record the errors of share partitions that cannot be read any more; return whether there are any."""
        has_failed = False
        async for in_use in way.over(self._partitions):
            if in_use.has_failed:
                has_failed = True
                self._fetched.setdefault(
                    in_use.partition.key.topic_partition, FetchedShare(in_use.failure or NO_LEADER)
                )
        return has_failed

    async def _acquire(self, held: list[InUse], way: Walk, *, is_last: bool) -> bool:
        """Read the held share partitions and acquire from them; return whether the response has any content."""
        if not held:
            return False
        reads: list[tuple[InUse, int, LogRead]] = []
        seen: dict[InUse, tuple[int, int]] = {}
        bytes_read = 0
        try:
            for in_use in held:
                if self._records_left <= 0:
                    break  # The rest is not read: other members, or the next fetch, begin with it.
                if way.is_over(STEPS_OF_PARTITION):
                    await way.give_way()
                # Before the read: more records may come until all share partitions are read.
                seen[in_use] = in_use.readable(self._isolation)
                read = await self._read(in_use, self._max_bytes // len(held), min_one_batch=bytes_read == 0)
                if read is not None:
                    reads.append((in_use, *read))
                    bytes_read += read[1].size_bytes
                if bytes_read >= self._min_bytes:
                    await self._acquire_all(reads, way)
            if bytes_read >= self._min_bytes or is_last or self._fetched:
                await self._acquire_all(reads, way)
        finally:
            for _, _, result in reads:
                if result.region is not None:
                    result.region.release()
        if not self._fetched:
            # Also if it had to be enough: the offsets before the end may have no records left, and the same read would
            # be repeated until the time is over.
            self._seen |= seen
        return bool(self._fetched)

    async def _acquire_all(self, reads: list[tuple[InUse, int, LogRead]], way: Walk) -> None:
        """Acquire from the reads, up to the limit of records; remove the reads that were used."""
        while reads and self._records_left > 0:
            if way.is_over(STEPS_OF_PARTITION):
                await way.give_way()
            in_use, fetch_offset, result = reads.pop(0)
            await self._acquire_from(in_use, fetch_offset, result, way)

    async def _read(self, in_use: InUse, max_bytes: int, *, min_one_batch: bool) -> tuple[int, LogRead] | None:
        """Return (requested offset, the read); None after an error, which is recorded, or without a log."""
        while True:
            log = in_use.hosted.log
            if log is None or not in_use.is_current:
                return None
            fetch_offset = in_use.partition.next_fetch_offset()
            try:
                return fetch_offset, log.read(
                    fetch_offset, max_bytes, isolation=self._isolation, min_one_batch=min_one_batch
                )
            except NeedsWarming as cold:
                needed = cold
            except ApiError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or not in_use.partition.move_log_start(
                    log.log_start_offset
                ):
                    self._refuse(in_use, ErrorCode(error.code))
                    return None
                continue
            except StorageError:
                self._refuse(in_use, ErrorCode.KAFKA_STORAGE_ERROR)
                return None
            if not await self._warm(in_use, needed):
                return None

    async def _scan(self, in_use: InUse, scan: HeaderScan, way: Walk) -> bool:
        """Read all headers, in turns. Return whether that succeeded; an error is recorded."""
        while True:
            needed = None
            try:
                if scan.run(HEADERS_AT_ONCE):
                    return True
            except NeedsWarming as cold:
                needed = cold
            except OSError as error:
                self._fail(in_use, error)
                return False
            if needed is not None and not await self._warm(in_use, needed):
                return False
            if way.is_over(HEADERS_AT_ONCE):
                await way.give_way()

    async def _warm(self, in_use: InUse, cold: NeedsWarming) -> bool:
        """Let a worker read pages that are not in the cache. Return whether that succeeded; an error is recorded."""
        try:
            await warm(self._services, cold)
        except OSError as error:
            self._fail(in_use, error)
            return False
        return True

    def _fail(self, in_use: InUse, error: OSError) -> None:
        """Record that a share partition's log cannot be read: its directory goes offline, others are served."""
        log = in_use.hosted.log
        if log is not None:
            log.log_dir.handle_os_error(error, f"reading {in_use.hosted.topic_partition}")
        self._refuse(in_use, ErrorCode.KAFKA_STORAGE_ERROR)

    async def _acquire_from(self, in_use: InUse, fetch_offset: int, read: LogRead, way: Walk) -> None:
        region = read.region
        if region is None:
            return
        try:
            records = in_use.partition.records
            end_offset = max(records.end_offset + 1, fetch_offset) + min(self._records_left, self._max_record_locks)
            scan = HeaderScan(region, end_offset)
            if not await self._scan(in_use, scan, way) or self._has_session_ended():
                return
            aborted = [
                AbortedTransaction(each.producer_id, each.first_offset) for each in read.aborted_transactions or ()
            ]
            fetched = FetchedRecords(fetch_offset, [each.batch for each in scan.batches], aborted)
            request = self._request
            limits = AcquireLimits(self._records_left, request.batch_size, request.share_acquire_mode == RECORD_LIMIT)
            now_ms = self._services.clock.monotonic_ms()
            acquired = self._shares.attempt(
                in_use, lambda: in_use.partition.acquire(self._key.member_id, fetched, limits, now_ms)
            )
            in_use.schedule()
            if not acquired:
                return
            self._records_left -= sum(part.record_count for part in acquired)
            _narrow(region, scan, acquired)
            self._fetched[in_use.partition.key.topic_partition] = FetchedShare(acquired=acquired, region=region)
            region = None  # released with the response
        finally:
            if region is not None:
                region.release()


def _narrow(region: FileRegion, scan: HeaderScan, acquired: list[AcquiredRecords]) -> None:
    """Narrow the region to the batches with acquired records, and those between them."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    wanted = [
        each
        for each in scan.batches
        if each.batch.last_offset >= first_offset and each.batch.base_offset <= last_offset
    ]
    start = wanted[0].position
    region.narrow(start, wanted[-1].position + wanted[-1].size_bytes - start)
