"""From committed records to images: snapshots, batches, metadata transactions.

A metadata transaction (KIP-868) spans batches; until its end nothing of it, and nothing after its beginning, is in an
image. An aborted one leaves no trace. Images are published per call, not per batch: many small batches that come
together (a log read at start) make one image.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from kafkapy.metadata.delta import MetadataDelta, delta_steps
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kafkapy.protocol.messages.abort_transaction_record import AbortTransactionRecord
from kafkapy.protocol.messages.begin_transaction_record import BeginTransactionRecord
from kafkapy.protocol.messages.end_transaction_record import EndTransactionRecord


class ImageLoader:
    """Keeps the last published image, and what was replayed since."""

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
        """Take a whole snapshot, in steps: it replaces the image, and whatever was replayed but not yet published."""
        self._delta = yield from delta_steps(self.image, records)
        self._transaction = None
        self._provenance = provenance

    def replay(self, records: Iterable[Any]) -> None:
        """Take committed records of a batch, or some of them; `end_batch` comes after the last."""
        for record in records:
            self._replay_record(record)

    def end_batch(self, provenance: Provenance) -> None:
        """Take note that a committed batch (a control batch, too) was replayed; its last record is at `provenance`."""
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        if self._transaction is None:
            self._provenance = provenance

    def publish(self) -> Generator[None, None, tuple[MetadataDelta, MetadataImage] | None]:
        """Return the changes since the last image and the image with them; None without any, or in a transaction.

        In steps; nothing may be replayed in between.
        """
        delta = self._delta
        if delta is None or self._transaction is not None:
            return None
        image = yield from delta.apply_steps(self._provenance)
        self._delta, self.image = None, image
        return delta, image

    def _replay_record(self, record: Any) -> None:
        if isinstance(record, BeginTransactionRecord):
            assert self._transaction is None, "a metadata transaction begins inside another"
            self._transaction = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            buffered, self._transaction = self._transaction, None
            assert buffered is not None, "a metadata transaction ends that has not begun"
            if isinstance(record, EndTransactionRecord):
                self._apply(buffered)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply((record,))

    def _apply(self, records: Iterable[Any]) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        for record in records:
            self._delta.replay(record)
