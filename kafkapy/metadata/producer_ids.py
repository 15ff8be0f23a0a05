"""The controller's counter of producer ids, allocated to brokers in blocks of a thousand (KIP-730).

A broker requests its next block, and hands out the ids of its own, by runtime/broker/producer_ids.py.
"""

from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.image import MetadataImage
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import INT64_MAX

if TYPE_CHECKING:
    from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord


BLOCK_SIZE: Final = 1000
"""Ids of a block, as in Apache Kafka: one record for a thousand producers. Ids left at a broker's stop stay unused."""


class ProducerIdBlock(NamedTuple):
    """The ids first_id ... first_id + size - 1, allocated to one broker and never reused."""

    first_id: int
    size: int


class ProducerIdControl:
    """The first id that no block has yet, as of the controller's last record: blocks never overlap."""

    def __init__(self, brokers: BrokerControl) -> None:
        self._brokers = brokers
        self._next_id = 0

    def load(self, image: MetadataImage) -> None:
        self._next_id = max(image.next_producer_id, 0)

    def decide_allocate(self, broker_id: int, broker_epoch: int) -> Decision[Any, ProducerIdBlock]:
        """Allocate the next block to a broker. Raises ApiError STALE_BROKER_EPOCH."""
        from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord

        self._brokers.check_epoch(broker_id, broker_epoch)
        if self._next_id > INT64_MAX - BLOCK_SIZE:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=self._next_id + BLOCK_SIZE
        )
        return Decision(ProducerIdBlock(self._next_id, BLOCK_SIZE), [record])

    def replay(self, record: "ProducerIdsRecord") -> None:
        assert record.next_producer_id > self._next_id or self._next_id == 0, (
            f"the next producer id falls from {self._next_id} to {record.next_producer_id}"
        )
        self._next_id = record.next_producer_id
