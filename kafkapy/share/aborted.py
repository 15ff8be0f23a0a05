"""Finds the batches of aborted transactions among those read, and removes them from acquired records."""

from collections.abc import Sequence

from kafkapy.share.fetched import AbortedTransaction, AcquiredRecords, FetchedBatch


def aborted_batches(batches: Sequence[FetchedBatch], aborted: Sequence[AbortedTransaction]) -> list[FetchedBatch]:
    """Return the batches of aborted transactions, in order.

    A transaction begins at its first offset and ends at the abort marker of its producer. Markers stay
    acquired: the client acknowledges their offsets as gaps.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found: list[FetchedBatch] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producer_ids.add(waiting.pop().producer_id)
        if batch.is_abort_marker:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def without(acquired: Sequence[AcquiredRecords], batches: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """Return the acquired records that are in none of the batches; both are in order."""
    left: list[AcquiredRecords] = []
    index = 0
    for part in acquired:
        first_offset = part.first_offset
        while index < len(batches) and batches[index].last_offset < first_offset:
            index += 1
        following = index
        while following < len(batches) and batches[following].base_offset <= part.last_offset:
            if first_offset < batches[following].base_offset:
                left.append(AcquiredRecords(first_offset, batches[following].base_offset - 1, part.delivery_count))
            first_offset = batches[following].last_offset + 1
            following += 1
        if first_offset <= part.last_offset:
            left.append(AcquiredRecords(first_offset, part.last_offset, part.delivery_count))
    return left
