"""Value types that every layer uses. All are immutable, so they may be shared and used as dictionary keys."""

import base64
import binascii
from typing import Final, TypeAlias

from kafkapy.named_tuple import NamedTuple

Uuid: TypeAlias = bytes
"""The 16 bytes of a Kafka UUID, as on the wire and on disk. Text form: unpadded URL-safe base64, 22 characters."""

ZERO_UUID: Uuid = bytes(16)
"""Means "none" wherever Kafka sends a UUID (Uuid.ZERO_UUID)."""

ONE_UUID: Uuid = bytes(15) + b"\x01"
"""The topic id of `__cluster_metadata` (Uuid.ONE_UUID)."""


INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

MIN_VIEW_BYTES: Final = 8 * 1024
"""From this size on, a view of received bytes costs less than a copy."""


class TopicPartition(NamedTuple):
    """A partition, identified by topic name and partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch of the record before it (or of the record at it, if the user of it says so)."""

    offset: int
    leader_epoch: int

    def __str__(self) -> str:
        """Return the pair as Apache Kafka prints it."""
        return f"OffsetAndEpoch[offset={self.offset}, epoch={self.leader_epoch}]"


class ReplicaKey(NamedTuple):
    """A Raft replica: the node id and the id of its log directory (KIP-853), ZERO_UUID if that is unknown."""

    node_id: int
    directory_id: Uuid

    def __str__(self) -> str:
        """Return the key as Apache Kafka prints it."""
        return f"ReplicaKey(id={self.node_id}, directoryId={uuid_to_string(self.directory_id)})"


METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)


_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"
"""The prefix of an IPv4-mapped IPv6 address."""


def host_text(address: bytes) -> str:
    """Return an address of 4 or 16 bytes as Java's InetAddress.getHostAddress prints it; ACLs and limits compare this.

    `::1` is printed as `0:0:0:0:0:0:0:1`; an IPv4-mapped IPv6 address is printed as the IPv4 address.
    """
    assert len(address) in (4, 16)
    if len(address) == 16 and not address.startswith(_IPV4_MAPPED):
        return ":".join(f"{int.from_bytes(address[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
    return ".".join(map(str, address[-4:]))


def uuid_to_string(uuid: Uuid) -> str:
    """Return the 22 characters that Kafka prints for a UUID."""
    assert len(uuid) == 16
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_string(text: str) -> Uuid:
    """Parse Kafka's text form of a UUID. Raises ValueError when it is not 16 bytes of base64."""
    try:
        uuid = base64.urlsafe_b64decode(text + "==" if len(text) == 22 else text)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a UUID: {text}") from error
    if len(uuid) != 16:
        raise ValueError(f"not a UUID: {text} decodes to {len(uuid)} bytes, not 16")
    return uuid
