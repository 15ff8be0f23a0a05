"""Members of groups whose broker assigns (KIP-848, 932, 1071): two clusters may assign at different heartbeats.

One cluster may answer a heartbeat with the assignment, and another one without it, at an earlier epoch. So requests are
sent with the epoch that the member has now, and a heartbeat is repeated until its response has the assignment.
"""

from typing import Any, Final

from kafkapy.protocol.headers import RequestHeader
from kafkapy.recording.compare import differences
from kafkapy.recording.roles import Roles

HEARTBEATS: Final = frozenset((68, 76, 88))
"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat."""
ASSIGNMENT: Final = "assignment"
EPOCHS: Final = ("memberEpoch", "generationIdOrMemberEpoch", "generationId")
"""The fields beside memberId in which requests carry a member's epoch. Below 1 it says that it joins or leaves."""


class Memberships:
    """The epoch and the last assignment of each member now."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._epochs: dict[str, int] = {}
        self._assignments: dict[str, Any] = {}

    def with_epochs(self, value: Any) -> Any:
        """Return the fields of a request, whose members are those of now, with their epochs of now."""
        if isinstance(value, list):
            return [self.with_epochs(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {name: self.with_epochs(each) for name, each in value.items()}
        epoch = self._epochs.get(found.get("memberId") or "")
        if epoch is not None:
            found.update({name: epoch for name in EPOCHS if found.get(name, 0) > 0})
        return found

    def learn(self, now: dict[str, Any]) -> None:
        """Record the epoch and the assignment of a response to a heartbeat."""
        member_id = now.get("memberId")
        if not member_id:
            return
        if now["memberEpoch"] > 0:
            self._epochs[member_id] = now["memberEpoch"]
        if now.get(ASSIGNMENT) is not None:
            self._assignments[member_id] = now[ASSIGNMENT]

    def is_behind(self, header: RequestHeader, recorded: dict[str, Any], now: dict[str, Any]) -> bool:
        """Return whether a member lacks the assignment that the recorded response brought, and may yet get it."""
        if recorded.get(ASSIGNMENT) is None or recorded["errorCode"] or now["errorCode"]:
            return False
        had, has = ({ASSIGNMENT: each[ASSIGNMENT]} for each in self.cumulated(recorded, now))
        return bool(differences(header, had, has, self._roles))

    def cumulated(self, recorded: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both responses with the last assignment of their member, which only a change of it brings."""
        if recorded.get(ASSIGNMENT) is None:
            return {**recorded, ASSIGNMENT: None}, {**now, ASSIGNMENT: None}
        return recorded, {**now, ASSIGNMENT: self._assignments.get(now.get("memberId") or "")}
