"""Damages records on the disk of a broker that runs."""

import os
from typing import TYPE_CHECKING

from kafkapy.embedded.faults.rules import FaultError
from kafkapy.record.batches import scan_headers
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer


def corrupt(server: "BrokerServer", topic: str, partition: int, offset: int) -> None:
    """Change the last byte of the batch with this offset. Raises FaultError if the log has none."""
    log = server.node.log_manager.get_log(TopicPartition(topic, partition))
    if log is None:
        raise FaultError(f"node {server.node_id} has no log of {topic}-{partition}")
    if not log.log_start_offset <= offset < log.log_end_offset:
        has = f"its offsets are {log.log_start_offset} to {log.log_end_offset - 1}"
        if log.log_start_offset == log.log_end_offset:
            has = "it has no records"
        raise FaultError(f"{topic}-{partition} has no offset {offset}: {has}")
    names = sorted(name for name in os.listdir(log.directory) if name.endswith(".log"))
    path = os.path.join(log.directory, [name for name in names if int(name[:-4]) <= offset][-1])
    if os.stat(path).st_nlink > 1:
        raise FaultError(
            f"{topic}-{partition} shares the segment of offset {offset} with a snapshot: corrupt a newer one"
        )
    with open(path, "r+b") as file:
        position = _position_of_last_byte(file.read(), offset)
        if position is None:
            raise FaultError(f"{topic}-{partition} has no record with the offset {offset}: it was compacted away")
        file.seek(position)
        was = file.read(1)
        file.seek(position)
        file.write(bytes([was[0] ^ 0xFF]))


def _position_of_last_byte(data: bytes, offset: int) -> int | None:
    for batch in scan_headers(data):
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.position + batch.size_bytes - 1
    return None
