"""One term of the active controller: its tables, and the way of a decision: decide -> append -> replay.

The tables are ahead of the committed image by the records that were appended but are not committed yet. They are built
from the image when the term begins, and dropped when it ends. A controller that is no longer the leader cannot write:
`Quorum.append` compares the leader epoch. If it does not know that yet, no majority commits what it appends.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import Decided, Decision
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.features import record_version
from kafkapy.metadata.image import METADATA_VERSION, MetadataImage
from kafkapy.metadata.record_serde import encode_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.quorum.quorum import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from kafkapy.seams import Clock

if TYPE_CHECKING:
    from kafkapy.runtime.quorum.quorum import CommittedBatch, Quorum

R = TypeVar("R")

MAX_BATCH_BYTES: Final = 4 << 20
"""A decision that is not atomic is split into batches of at most this size, which is below the quorum's 8 MiB."""
RECORDS_PER_STEP: Final = 100
"""Records that are encoded, appended or replayed per step; also the batch size of a decision that is not atomic."""


class Term:
    """A term in which this node leads the quorum. `is_begun` once its tables are built; unusable once `is_ended`.

    on_fatal: called with an error of a replay; the tables are not valid after it.
    """

    def __init__(
        self,
        controller: Controller,
        quorum: "Quorum",
        leader_epoch: int,
        on_fatal: Callable[[Exception], None],
        *,
        max_batch_bytes: int,
    ) -> None:
        self.controller = controller
        self.leader_epoch = leader_epoch
        self.is_begun = False
        self.is_ended = False
        self.has_appended = False
        """Whether records were appended since the owner last set it to False."""
        self._quorum = quorum
        self._max_record_bytes = min(MAX_BATCH_BYTES, max_batch_bytes - BATCH_OVERHEAD_BYTES)
        """Of the records of a batch of a decision that is not atomic, but for a single record."""
        self._on_fatal = on_fatal
        self._appended: deque[tuple[int, list[Any]]] = deque()
        """(base offset, records) of own batches not yet committed, so that they need not be decoded again."""

    def build(self, image: MetadataImage, clock: Clock) -> Iterator[None]:
        """Build the tables from the image, in steps; nothing may be committed meanwhile. The term may end meanwhile."""
        yield from self.controller.load_topics(image)
        if not self.is_ended:
            now_ms = clock.monotonic_ms()
            self.controller.load_rest(image, next_offset=self._quorum.log_end_offset, now_ms=now_ms)
            self.is_begun = True

    def end(self) -> None:
        self.is_ended = True
        self._appended.clear()

    def check(self) -> None:
        """Raise ApiError NOT_CONTROLLER if the term has ended: its tables are no longer in use."""
        if self.is_ended:
            raise not_controller(self._quorum)

    def decide_and_append(
        self, decide: Callable[[Controller, int], Decided[Any, R]], now_ms: int
    ) -> Generator[int, None, R]:
        """Decide at once, then return the steps of the decision: each yields the number of steps that it counts for.

        No other decision is made between them: at each decision the tables equal the log.
        """
        self.controller.skip_to(self._quorum.log_end_offset)
        return self._steps(decide(self.controller, now_ms))

    def _steps(self, decided: Decided[Any, R]) -> Generator[int, None, R]:
        while not isinstance(decided, Decision):
            try:
                records = next(decided)
            except StopIteration as end:
                decided = end.value
                continue
            if records:
                yield from self.append(records)
            yield 1
        if decided.records:
            yield from self.append(decided.records, is_atomic=decided.is_atomic)
        return decided.response

    def append(self, records: list[Any], *, is_atomic: bool = False) -> Iterator[int]:
        """Append and replay records in steps: as one batch if they are atomic, else in as many as needed."""
        metadata_version = self.controller.features.levels.get(METADATA_VERSION, 0)
        values: list[bytes] = []
        first, size_bytes = 0, 0
        for index, record in enumerate(records):
            value = encode_record(record, record_version(record, metadata_version))
            record_bytes = len(value) + RECORD_OVERHEAD_BYTES
            is_full = len(values) == RECORDS_PER_STEP or size_bytes + record_bytes > self._max_record_bytes
            if is_full and values and not is_atomic:
                yield from self._append_batch(records[first:index], values)
                values, first, size_bytes = [], index, 0
            values.append(value)
            size_bytes += record_bytes
            if is_atomic and len(values) % RECORDS_PER_STEP == 0:
                yield RECORDS_PER_STEP
        if values:
            yield from self._append_batch(records[first:], values)

    def _append_batch(self, records: list[Any], values: list[bytes]) -> Iterator[int]:
        self.check()
        self.controller.skip_to(self._quorum.log_end_offset)
        base_offset = self.controller.next_offset
        last_offset = self._append_to_quorum(values)
        assert last_offset == base_offset + len(records) - 1, f"appended at {last_offset}, expected {base_offset}"
        self._appended.append((base_offset, records))
        self.has_appended = True
        for start in range(0, len(records), RECORDS_PER_STEP):
            part = records[start : start + RECORDS_PER_STEP]
            try:
                for offset, record in enumerate(part, base_offset + start):
                    self.controller.replay(record, offset)
            except Exception as error:
                self._on_fatal(error)
                raise
            yield len(part)

    def _append_to_quorum(self, values: list[bytes]) -> int:
        try:
            return self._quorum.append(values, self.leader_epoch)
        except StorageError as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"The controller stops: {error}") from error

    def pop_appended(self, batch: "CommittedBatch") -> Iterable[Any] | None:
        """Return the records of an own batch, which is committed now; None if it is not one."""
        while self._appended and self._appended[0][0] <= batch.base_offset:
            base_offset, records = self._appended.popleft()
            if base_offset == batch.base_offset and len(records) == len(batch.records):
                return records
        return None


def not_controller(quorum: "Quorum") -> ApiError:
    """Return the error of a node that is not the active controller; it names the one that appears to be."""
    leader_id = quorum.leader_id
    if leader_id in (-1, quorum.node_id):
        return ApiError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
    return ApiError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader_id}.")
