"""Values that each cluster chooses itself: ids, addresses, epochs. A value of the recording is matched with one of now.

Two values match if they are at the same place (role) in the recorded response and in the response of now. From then on
further requests are sent with the new value, and further responses are expected to have it.
"""

import base64
import binascii
import contextlib
from typing import Any, Final

from kafkapy.errors import KafkapyError
from kafkapy.record.batch import ATTRIBUTES_POSITION, CRC_POSITION
from kafkapy.record.batches import scan_headers
from kafkapy.record.crc import crc32c

ROLES: Final = {
    "memberId": "member", "topicId": "topic id", "producerId": "producer", "sessionId": "fetch session",
    "clusterId": "cluster", "host": "host", "port": "port", "nodeId": "node", "leaderId": "node", "brokerId": "node",
    "controllerId": "node", "replicaNodes": "node", "isrNodes": "node", "offlineReplicas": "node",
    "replicaId": "node", "directoryId": "directory", "clientInstanceId": "client instance", "tokenId": "token",
    "brokerEpoch": "broker epoch",
}  # fmt: skip
"""Fields by the role of their values."""
IN_GROUPS: Final = {"leader": "member"}
"""The roles of fields of JoinGroup."""
FIXED: Final = frozenset((-1, 0, "", None, "AAAAAAAAAAAAAAAAAAAAAA"))
"""What means "none" in every cluster."""
COUNTED_FROM_0: Final = frozenset(("producer", "node"))
"""Roles in which 0 is an ordinary value, and does not mean "none"."""
RECORDS: Final = "records"
PRODUCER_POSITION: Final = 43
"""The position of the producer id in a batch. The CRC covers it."""


class Roles:
    """Pairs of values that mean each other."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, Any], Any] = {}
        self._recorded: dict[tuple[str, Any], Any] = {}

    def meet(self, role: str, recorded: Any, now: Any) -> bool:
        """Return whether two values may mean each other; from now on they do."""
        if _is_fixed(role, recorded) or _is_fixed(role, now):
            return bool(recorded == now)
        if self._now.setdefault((role, recorded), now) != now:
            return False
        return bool(self._recorded.setdefault((role, now), recorded) == recorded)

    def now(self, role: str, recorded: Any) -> Any:
        return self._now.get((role, recorded), recorded)

    def translated(self, value: Any, *, is_join: bool = False) -> Any:
        """Return the fields of a recorded request with the values of now."""
        if isinstance(value, list):
            return [self.translated(each, is_join=is_join) for each in value]
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for name, each in value.items():
            role = role_of(name, is_join=is_join)
            if name == RECORDS and isinstance(each, str):
                found[name] = self._with_producers(each)
            elif role is None:
                found[name] = self.translated(each, is_join=is_join)
            elif isinstance(each, list):
                found[name] = [self.now(role, one) for one in each]
            else:
                found[name] = self.now(role, each)
        return found

    def _with_producers(self, encoded: str) -> str:
        """Return batches with the producer's id of now, and their CRC."""
        try:
            data = bytearray(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            return encoded
        with contextlib.suppress(KafkapyError):  # a client may send anything: what cannot be read stays as it is
            for batch in scan_headers(bytes(data)):
                now = self.now(ROLES["producerId"], batch.producer_id)
                if now != batch.producer_id:
                    at, end = batch.position, batch.position + batch.size_bytes
                    data[at + PRODUCER_POSITION : at + PRODUCER_POSITION + 8] = int(now).to_bytes(8, "big", signed=True)
                    crc = crc32c(bytes(data[at + ATTRIBUTES_POSITION : end]))
                    data[at + CRC_POSITION : at + ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        return base64.b64encode(bytes(data)).decode()


def _is_fixed(role: str, value: Any) -> bool:
    return value in FIXED and not (value == 0 and role in COUNTED_FROM_0)


def role_of(name: str, *, is_join: bool = False) -> str | None:
    found = ROLES.get(name)
    return IN_GROUPS.get(name) if found is None and is_join else found
