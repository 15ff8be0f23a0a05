"""Building images from committed records: snapshots, batches, metadata transactions.

A metadata transaction (KIP-868) spans batches. Until it ends, images contain nothing from its beginning on; an aborted
transaction has no effect. Images are published per call, not per batch, so many small batches (the log at start) make
one image. Driven by `runtime/controller/controller.py`.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

from kafkapy.metadata.delta import MetadataDelta, delta_steps
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kafkapy.protocol.messages.abort_transaction_record import AbortTransactionRecord
from kafkapy.protocol.messages.begin_transaction_record import BeginTransactionRecord
from kafkapy.protocol.messages.end_transaction_record import EndTransactionRecord

TRANSACTION_MARKERS: Final = frozenset((BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord))


class ImageLoader:
    """The last published image, and the delta of the records replayed since."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._delta: MetadataDelta | None = None
        self._provenance = EMPTY_IMAGE.provenance
        self._transaction: list[Any] | None = None
        """The records since BeginTransactionRecord, None outside of a transaction."""

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    def load_snapshot(self, records: Iterable[Any], provenance: Provenance) -> Iterator[None]:
        """Load a complete snapshot, in steps. It replaces the image and any unpublished changes."""
        self._delta = yield from delta_steps(self.image, records)
        self._transaction = None
        self._provenance = provenance

    def replay(self, records: Iterable[Any]) -> None:
        """Replay committed records of a batch, or some of them; call `end_batch` after the last one."""
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        for record in records:
            if self._transaction is None and type(record) not in TRANSACTION_MARKERS:
                self._delta.replay(record)
            else:
                self._replay_in_transaction(record)

    def end_batch(self, provenance: Provenance) -> None:
        """End a committed batch (control batches, too), after it was replayed; its last record is at `provenance`."""
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        if self._transaction is None:
            self._provenance = provenance

    def publish(self) -> Generator[None, None, tuple[MetadataDelta, MetadataImage] | None]:
        """Return (delta since the last image, new image), None without changes or inside a transaction.

        In steps; nothing may be replayed between them.
        """
        delta = self._delta
        if delta is None or self._transaction is not None:
            return None
        assert self._provenance.last_offset >= self.image.provenance.last_offset, "committed metadata never goes back"
        image = yield from delta.apply_steps(self._provenance)
        assert self._delta is delta, "nothing is replayed while an image is made"
        self._delta, self.image = None, image
        return delta, image

    def _replay_in_transaction(self, record: Any) -> None:
        """Replay the beginning or the end of a transaction, or a record inside of one."""
        assert self._delta is not None, "the caller has made one"
        if isinstance(record, BeginTransactionRecord):
            assert self._transaction is None, "a metadata transaction begins inside another"
            self._transaction = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            buffered, self._transaction = self._transaction, None
            assert buffered is not None, "a metadata transaction ends that has not begun"
            if isinstance(record, EndTransactionRecord):
                for each in buffered:
                    self._delta.replay(each)
        else:
            assert self._transaction is not None, "the caller replays other records itself"
            self._transaction.append(record)
