"""Members of streams groups for simulations: they lose messages, take their time to revoke, and crash."""

from dataclasses import dataclass, field
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.support.streams_groups import Task, task_ids, tasks_of

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
BEGIN_AGAIN: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""A member with one of these errors joins again at once."""
WAIT: Final = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""With one of these it joins again at its next heartbeat."""


@dataclass
class Roles:
    """What a member runs, by role."""

    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)
    warmup: set[Task] = field(default_factory=set)

    def copy(self) -> "Roles":
        return Roles(set(self.active), set(self.standby), set(self.warmup))


class SimulatedStreamsMember:
    """A stream thread that revokes in its own time, and forgets its tasks when fenced or when its session is over."""

    group_id = "g"
    session_ms = SESSION_MS
    rebalance_ms = REBALANCE_MS

    def __init__(self, world: Any, name: str, process_id: str, instance_id: str | None) -> None:
        self.world = world
        self.process_id = process_id
        self.instance_id = instance_id
        self.restart(name)

    @property
    def now_ms(self) -> int:
        return int(self.world.shard.now_ms)

    def restart(self, member_id: str) -> None:
        self.member_id = member_id
        self.revoked_at_ms = 0
        self.next_beat_ms = self.sent_ms = self.now_ms
        self.is_running = True
        self.topology = self.world.topology_to_join_with()
        self.forget()

    def forget(self) -> None:
        self.epoch = 0
        self.running, self.wanted = Roles(), Roles()
        self.reported: Roles | None = None

    def visible(self) -> set[Task]:
        """Return the tasks that the member believes to run actively: none once its session must be over."""
        now_ms = self.now_ms
        if now_ms >= self.sent_ms + self.session_ms:
            return set()
        active = self.running.active
        return active & self.wanted.active if now_ms >= self.revoked_at_ms else active

    def act(self) -> None:
        self.forget_if_silent()
        self.adopt()
        if self.is_running and self.now_ms >= self.next_beat_ms:
            self.beat()

    def forget_if_silent(self) -> None:
        """Forget the tasks if the session must be over."""
        if self.is_running and self.now_ms >= self.sent_ms + self.session_ms:
            self.forget()

    def adopt(self) -> None:
        """Run what is wanted, once what is not has been closed."""
        if self.now_ms >= self.revoked_at_ms or not self.running.active - self.wanted.active:
            self.running = self.wanted.copy()

    def beat(self) -> None:
        now_ms = self.now_ms
        self.next_beat_ms = now_ms + HEARTBEAT_MS
        request = self.request()
        if self.world.loses_message():
            self.reported = None
            return
        try:
            response = self.world.send(request)
        except ApiError as error:
            self.refuse(error)
            return
        if self.world.loses_message():
            self.reported = None
            return
        self.accept(response)
        self.sent_ms = now_ms

    def request(self) -> StreamsGroupHeartbeatRequest:
        request = self.request_at(self.epoch)
        if self.epoch == 0 or self.reported is None:
            request.rebalance_timeout_ms = self.rebalance_ms
            request.process_id = self.process_id
        if self.epoch == 0:
            request.topology = self.topology
        if self.reported != self.running:
            request.active_tasks = task_ids(self.running.active)
            request.standby_tasks = task_ids(self.running.standby)
            request.warmup_tasks = task_ids(self.running.warmup)
            self.reported = self.running.copy()
        request.task_offsets = self.world.task_offsets(self.running)
        return request

    def request_at(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        """Return a heartbeat without tasks: that with which a member leaves, at a negative epoch."""
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def accept(self, response: StreamsGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        active = tasks_of(response.active_tasks)
        if active is None:
            return
        is_revoking = bool(self.running.active - self.wanted.active)
        self.wanted = Roles(active, tasks_of(response.standby_tasks) or set(), tasks_of(response.warmup_tasks) or set())
        if self.running.active - self.wanted.active and not is_revoking:
            # If responses were lost, the coordinator has been waiting since about the last one that arrived.
            until_ms = self.now_ms + self.world.revocation_ms()
            self.revoked_at_ms = min(until_ms, self.sent_ms + self.rebalance_ms - 1)
        self.adopt()

    def refuse(self, error: ApiError) -> None:
        if error.code in BEGIN_AGAIN:
            self.forget()
            self.next_beat_ms = self.now_ms
        elif error.code in WAIT:
            self.forget()
        elif error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.reported = None
        else:
            raise error

    def leave(self, epoch: int) -> None:
        self.crash()
        try:
            self.world.send(self.request_at(epoch))
        except ApiError:
            self.epoch = 0  # it was not in the group any more

    def crash(self) -> None:
        self.running, self.wanted, self.is_running = Roles(), Roles(), False
