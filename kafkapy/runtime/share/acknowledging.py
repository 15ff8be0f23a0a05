"""The outcomes of one request's acknowledgements, which are known when their write has ended."""

import asyncio

from kafkapy.runtime.share.in_use import InUse
from kafkapy.share.pending_write import Refusal
from kafkapy.share.persister import TopicIdPartition


class Acknowledging:
    """The acknowledgements of one request, which have been applied and are being written."""

    __slots__ = ("_outcomes", "_writing", "_written")

    def __init__(
        self,
        outcomes: dict[TopicIdPartition, Refusal | None],
        written: list[InUse],
        writing: "asyncio.Future[list[Refusal | None]] | None",
    ) -> None:
        self._outcomes = outcomes
        self._written = written
        self._writing = writing

    async def outcomes(self) -> dict[TopicIdPartition, Refusal | None]:
        """Return the outcome of each partition, once all is written; that goes on if the caller is cancelled."""
        writing = self._writing
        if writing is not None:
            refusals = writing.result() if writing.done() else await asyncio.shield(writing)
            for in_use, refusal in zip(self._written, refusals, strict=True):
                key = in_use.partition.key
                self._outcomes[key.topic_partition] = refusal
        return self._outcomes
