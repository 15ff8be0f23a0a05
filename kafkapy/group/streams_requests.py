"""Dispatch of a shard's requests and records to its streams groups. Imported with the first of them.

Error messages are Kafka's, word for word: clients show them to users, who search for them.
"""

from collections.abc import Callable
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.decision import Client, GroupDecision, GroupRequestContext, ParkedResponse
from kafkapy.group.long_work import NO_RESULTS, LongWorkError, Results
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.checks import check_heartbeat
from kafkapy.group.streams.decision import HeartbeatResult, LargeTargetDue
from kafkapy.group.streams.describe import described_group
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.heartbeat import Heartbeat, decide_delayed_target, decide_leave
from kafkapy.group.streams.history import EXPIRED, streams_history
from kafkapy.group.streams.member import JOIN_EPOCH, LEAVE_EPOCHS
from kafkapy.group.streams.removal import members_of_one_batch, removal_records
from kafkapy.group.timeline_order import members_in_order
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_describe_response import DescribedGroup
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkapy.protocol.primitives import Message

NOBODY = Client("", "")


class StreamsGroups:
    """The streams groups among a shard's groups."""

    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        hashes: MetadataHashes,
        *,
        metadata: Callable[[], MetadataImage],
        wall_ms: Callable[[], int],
    ) -> None:
        """`groups` is the shard's own map of groups of any type, by id; `hashes` are shared with its other groups."""
        self._groups = groups
        self._settings = settings
        self._hashes = hashes
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._is_loaded = False
        self._history = streams_history(wall_ms)
        self._initial_delays: dict[str, int] = {}
        """By id of a new group, until its first record is replayed: when the delay of its first assignment ends."""

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        version: int,
        client: Client,
        now_ms: int,
        *,
        gives_way: bool = False,
        results: Results = NO_RESULTS,
    ) -> GroupDecision:
        """Decide StreamsGroupHeartbeat; the response is a HeartbeatResult. Raises ApiError (KIP-1071's codes).

        gives_way: raise LongWorkError, too, if long work has to be done first. results: of what was done for it.
        """
        found, image = self._groups.get(request.group_id), self._metadata()
        if type(found) is not StreamsGroup:
            return self._decided(found, request, version, client, now_ms, gives_way=gives_way, results=results)
        settings = found.own_settings(image.configs)
        endpoint_epoch, idle = found.endpoint_information_epoch, None
        if request.endpoint_information_epoch == endpoint_epoch and found.shutdown_member_id is None:
            idle = found.idle.find(request, client, image.topics, settings)
        if idle is not None:  # in line, because nearly all heartbeats end here
            found.timers.sessions.touch(idle.member_id, now_ms + settings.session_timeout_ms)
            response = StreamsGroupHeartbeatResponse(
                member_id=idle.member_id,
                member_epoch=idle.member_epoch,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                task_offset_interval_ms=settings.task_offset_interval_ms,
                acceptable_recovery_lag=settings.acceptable_recovery_lag,
                status=[],
                endpoint_information_epoch=endpoint_epoch,
            )
            return GroupDecision(HeartbeatResult(response))
        decision = self._decided(found, request, version, client, now_ms, gives_way=gives_way, results=results)
        if not decision.records and decision.response.tells_nothing(version, settings):
            found.idle.add(request, client, image.topics, settings)
        return decision

    def _decided(
        self,
        found: Any,
        request: StreamsGroupHeartbeatRequest,
        version: int,
        client: Client,
        now_ms: int,
        *,
        gives_way: bool,
        results: Results,
    ) -> GroupDecision:
        """Return the decision of a heartbeat of the group `found`, None if there is none. Raises as `heartbeat`."""
        check_heartbeat(request)
        self._history.begin_decision()
        group_id = request.group_id
        if request.member_epoch in LEAVE_EPOCHS:
            return decide_leave(self._existing(group_id), request)
        replaced: list[CoordinatorRecord] = []
        is_new = request.member_epoch == JOIN_EPOCH and (
            found is None or (isinstance(found, ClassicGroup) and found.is_empty)
        )
        if is_new:
            replaced = [] if found is None else list(found.tombstone_records())
            group = self.make(group_id)  # replaying the first record puts one into the map
        else:
            group = self._existing(group_id, "Streams group")
        context = GroupRequestContext(client, now_ms, self._wall_ms(), self._metadata(), gives_way=gives_way)
        assignor = ASSIGNORS[group.own_settings(context.image.configs).assignor_name]
        heartbeat = Heartbeat(
            group, request, context, assignor, version=version, is_known=found is not None, results=results
        )
        decision = heartbeat.decide(replaced)
        if is_new:
            if group.timers.initial_delay_until_ms is not None:
                self._initial_delays[group_id] = group.timers.initial_delay_until_ms
            decision.on_failed = self._forget_new(group_id)
        return decision

    def _forget_new(self, group_id: str) -> Callable[[int], list[ParkedResponse]]:
        """Return a function that removes a new group whose records cannot be appended."""

        def forget(_code: int) -> list[ParkedResponse]:
            self._initial_delays.pop(group_id, None)
            return []

        return forget

    def describe(self, group_id: str, *, start: int = 0, count: int | None = None) -> DescribedGroup:
        """Return the group as StreamsGroupDescribe shows it, with GROUP_ID_NOT_FOUND if it is not a streams group.

        start, count: which of its members are described, all if `count` is None. Only the first part has the topology.
        """
        try:
            group = self._existing(group_id)
        except ApiError as error:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        members = members_in_order(group.log.members, start, count)
        assignor_name = group.own_settings(self._metadata().configs).assignor_name
        return described_group(group, members, assignor_name, has_topology=start == 0)

    # -- time and replay ------------------------------------------------------------------------------------------

    def on_time(self, group: StreamsGroup, now_ms: int) -> GroupDecision:
        """Decide the first assignment after its delay, or the removal of members that missed a deadline."""
        self._history.begin_decision(EXPIRED)
        image = self._metadata()
        settings = group.own_settings(image.configs)
        if group.timers.maybe_end_initial_delay(now_ms):
            try:
                return self._due_target(group, now_ms, gives_way=True, results=NO_RESULTS)
            except LongWorkError:
                return GroupDecision(effects=(LargeTargetDue(group.group_id),))
        late = group.timers.late_members(now_ms, settings.session_timeout_ms)
        removed = members_of_one_batch(group.group_id, late)
        return GroupDecision(records=removal_records(group.log, removed))

    def due_target(self, group_id: str, now_ms: int, *, gives_way: bool, results: Results) -> GroupDecision:
        """Decide the first assignment after its delay. Raises LongWorkError as `heartbeat`, and GROUP_ID_NOT_FOUND."""
        self._history.begin_decision(EXPIRED)
        decision = self._due_target(self._existing(group_id), now_ms, gives_way=gives_way, results=results)
        decision.response = True
        return decision

    def _due_target(self, group: StreamsGroup, now_ms: int, *, gives_way: bool, results: Results) -> GroupDecision:
        context = GroupRequestContext(NOBODY, now_ms, self._wall_ms(), self._metadata(), gives_way=gives_way)
        assignor = ASSIGNORS[group.own_settings(context.image.configs).assignor_name]
        return decide_delayed_target(group, context, assignor, results)

    def on_loaded(self, now_ms: int) -> None:
        """Start after the log was replayed and before the first request."""
        groups = [group for group in self._groups.values() if isinstance(group, StreamsGroup)]
        self._history.load(groups)
        self._is_loaded = True
        for group in groups:
            group.log.is_loaded = True
            group.timers.on_loaded(now_ms)

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply a StreamsGroup* record. The first one creates the group, the group's tombstone removes it."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            if value is None:
                return
            assert not self._is_loaded or group is None, f"{group_id} would be replaced before it is deleted"
            group = self._groups[group_id] = self.make(group_id)
            group.log.is_loaded = self._is_loaded
            if group_id in self._initial_delays:
                group.timers.start_initial_delay(self._initial_delays.pop(group_id))
        self._history.before_replay(group, key, value)
        group.replay(key, value)
        self._history.after_replay(group, key, value)
        if group.log.is_deleted:
            del self._groups[group_id]

    def make(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id, self._settings, self._hashes)

    def _existing(self, group_id: str, noun: str = "Group") -> StreamsGroup:
        """Return the group. `noun` begins the message for one that is missing: Kafka has two."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
        if not isinstance(group, StreamsGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return group
