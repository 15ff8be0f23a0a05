"""A shard of classic groups without a broker: decisions are encoded, kept as a log, decoded and replayed at once.

Responses are kept by token until somebody takes them; a request that waits has none. A log that fails refuses records,
as a partition without enough replicas does.
"""

from dataclasses import replace
from typing import Any

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.decision import Client, GroupDecision, ParkedResponse
from kafkapy.group.records import CoordinatorRecord, decode_record, encode_record
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shard import GroupShard
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse
from tests.support.chance import SeededRandom

CLIENT = Client("client", "/127.0.0.1")
WALL_START_MS = 1_700_000_000_000
GROUP = "g"
LogEntry = tuple[bytes | None, bytes | None]


class ClassicWorld:
    """One shard, its log, its clock; methods take a request to the shard and give the response, None while it waits."""

    image = EMPTY_IMAGE

    def __init__(self, *, seed: int = 0, **config: Any) -> None:
        self.config = replace(GroupCoordinatorConfig(), **{"group_initial_rebalance_delay_ms": 0, **config})
        self.random = SeededRandom(seed)
        self.now_ms = 1_000
        self.log: list[LogEntry] = []
        self.log_error: ErrorCode | None = None
        self.responses: dict[int, Any] = {}
        self.waiting: set[int] = set()
        self.next_token = 0
        self.restart()

    # -- the coordinator ------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Fail over: another coordinator loads the log; what waits is told to look for it."""
        for token in self.waiting:
            self.responses[token] = ApiError(ErrorCode.NOT_COORDINATOR)
        self.waiting.clear()
        self.shard = GroupShard(
            GroupSettings(lambda: self.config),
            metadata=lambda: self.image,
            random=self.random,
            wall_ms=lambda: WALL_START_MS + self.now_ms,
            now_ms=lambda: self.now_ms,
        )
        for offset, (key, value) in enumerate(self.log):
            decoded = decode_record(key, value)
            assert decoded is not None
            self.shard.replay(decoded, offset)
        self.shard.on_loaded(self.now_ms)

    def carry_out(self, decision: GroupDecision) -> None:
        """Append and replay; hand out the responses. Raises ApiError where the log fails."""
        if decision.records and self.log_error is not None:
            error = ApiError(self.log_error)
            if decision.on_failed is not None:
                self._hand_out(decision.on_failed(error.code))
            else:
                self._hand_out([ParkedResponse(parked.token, error) for parked in decision.parked_responses])
            raise error
        for record in decision.records:
            self._append(record)
        self._hand_out(decision.parked_responses)

    def carry_out_record(self, record: CoordinatorRecord) -> None:
        """Append and replay a record that something else has decided."""
        self._append(record)

    def _append(self, record: CoordinatorRecord) -> None:
        _, key, value, _ = encode_record(record, WALL_START_MS + self.now_ms)
        decoded = decode_record(key, value)
        assert decoded is not None
        self.shard.replay(decoded, len(self.log))
        self.log.append((key, value))

    def _hand_out(self, parked_responses: list[ParkedResponse]) -> None:
        for parked in parked_responses:
            if parked.token in self.waiting:
                self.waiting.remove(parked.token)
                self.responses[parked.token] = parked.response

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass, with all that is due on its way."""
        end_ms = self.now_ms + elapsed_ms
        while (deadline_ms := self.shard.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            for group_id in self.shard.due_groups(self.now_ms):
                try:
                    self.carry_out(self.shard.on_time(group_id, self.now_ms))
                except ApiError:
                    assert self.log_error is not None
                self.shard.add_deadline(group_id)
        self.now_ms = end_ms

    def call(self, decide: Any) -> int:
        """Have the shard decide; return the token that the response, or the ApiError, comes under."""
        token = self.next_token
        self.next_token += 1
        self.waiting.add(token)
        try:
            decision = decide(token)
            self.carry_out(decision)
            if decision.response is not None:
                self._hand_out([ParkedResponse(token, decision.response)])
        except ApiError as error:
            self._hand_out([ParkedResponse(token, error)])
        for group_id in self.shard.groups:
            self.shard.add_deadline(group_id)
        return token

    # -- requests -------------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", **fields: Any) -> int:
        """Send a JoinGroup, return its token. `protocols` is name to metadata; `version`, `client` may be given."""
        version = fields.pop("version", 9)
        client = fields.pop("client", CLIENT)
        protocols = fields.pop("protocols", {"range": b"metadata"})
        fields = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **fields}
        request = JoinGroupRequest(
            group_id=fields.pop("group_id", GROUP),
            member_id=member_id,
            protocols=[JoinGroupRequestProtocol(name, metadata=metadata) for name, metadata in protocols.items()],
            **fields,
        )
        return self.call(lambda token: self.shard.classic.join(request, version, client, token, self.now_ms))

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> int:
        """Send a SyncGroup, return its token."""
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(to, assignment=what) for to, what in (assignments or {}).items()],
            **fields,
        )
        return self.call(lambda token: self.shard.classic.sync(request, token, self.now_ms))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """Send a Heartbeat, return the error code of the response."""
        request = HeartbeatRequest(GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance_id)
        return self.code(self.call(lambda token: self.shard.classic.heartbeat(request, self.now_ms)))

    def leave(self, *members: tuple[str, str | None]) -> LeaveGroupResponse:
        """Send a LeaveGroup for members given as member id and instance id; return the response."""
        request = LeaveGroupRequest(
            GROUP, members=[MemberIdentity(each, group_instance_id=instance_id) for each, instance_id in members]
        )
        response = self.take(self.call(lambda token: self.shard.classic.leave(request, 5, self.now_ms)))
        assert isinstance(response, LeaveGroupResponse)
        return response

    # -- answers --------------------------------------------------------------------------------------------------

    def is_waiting(self, token: int) -> bool:
        return token in self.waiting

    def take(self, token: int) -> Any:
        """Return the response under a token, once. Raises KeyError while the request waits."""
        return self.responses.pop(token)

    def code(self, token: int) -> int:
        """Return the error code of the response under a token."""
        response = self.take(token)
        return response.code if isinstance(response, ApiError) else response.error_code

    def joined(self, token: int) -> JoinGroupResponse:
        """Return the response of a JoinGroup that succeeded."""
        response = self.take(token)
        assert isinstance(response, JoinGroupResponse), response
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response

    def synced(self, token: int) -> SyncGroupResponse:
        """Return the response of a SyncGroup that succeeded."""
        response = self.take(token)
        assert isinstance(response, SyncGroupResponse), response
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response

    # -- shortcuts ------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def new_id(self, **fields: Any) -> str:
        """Have a member id given out, without joining with it."""
        response = self.take(self.join(**fields))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return str(response.member_id)

    def stable(self, count: int = 1, **fields: Any) -> list[str]:
        """Bring the group to STABLE with as many members; return their ids, the leader's first."""
        ids = [self.new_id(**fields) for _ in range(count)]
        tokens = [self.join(member_id, **fields) for member_id in ids]
        self.advance(self.config.group_initial_rebalance_delay_ms)
        responses = [self.joined(token) for token in tokens]
        self.sync_all(responses)
        return ids

    def sync_all(self, responses: list[JoinGroupResponse]) -> dict[str, bytes]:
        """Sync everyone who has joined; each is assigned bytes made of its id. Return the assignments."""
        leader = next(response for response in responses if response.member_id == response.leader)
        assignments = {member.member_id: member.member_id.encode() for member in leader.members}
        tokens = {
            response.member_id: self.sync(
                response.member_id, response.generation_id, assignments if response is leader else None
            )
            for response in responses
        }
        return {member_id: self.synced(token).assignment for member_id, token in tokens.items()}
