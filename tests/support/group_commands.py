"""The commands of tests/texts/classic_groups and tests/texts/consumer_groups: members of one group and its coordinator.

Members have names of a text's own. A response is printed when it comes, under the name of the member that has it; a
request without one is parked. What the coordinator writes goes to its log, which is replayed at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.leave_group_response import LeaveGroupResponse
from kafkapy.protocol.messages.sync_group_response import SyncGroupResponse
from tests.support.classic_groups import GROUP, ClassicWorld
from tests.support.consumer_groups import FakeConsumer, GroupWorld, image_of, names_of
from tests.support.texts import Command, options_of, table


class ClassicMember:
    """A member as its client knows it."""

    def __init__(self, name: str, instance_id: str | None, options: Mapping[str, int]) -> None:
        self.name = name
        self.instance_id = instance_id
        self.timeouts = options
        self.member_id = ""
        self.generation = -1


class ClassicGroupCommands:
    """A classic group.

    group [initial-delay=3000] [max-size=2]    the first command: a coordinator with these keys
    join A [instance=i] [session=10000] [rebalance=60000] [protocols=range,sticky]
                                 A sends JoinGroup, with the id that it was given last
    sync A [A=t-0,t-1 B=t-2]     A sends SyncGroup, if it leads with everybody's assignment
    heartbeat A, leave A         A sends Heartbeat, LeaveGroup
    advance 5000                 milliseconds pass, with what is due on the way
    fail-over                    another coordinator loads the log
    status                       the group as its coordinator has it
    """

    def __init__(self) -> None:
        self._world = ClassicWorld()
        self._members: dict[str, ClassicMember] = {}
        self._pending: dict[int, tuple[ClassicMember, str]] = {}
        """The member and API of each request that was not answered yet, by its token."""

    def commands(self) -> Mapping[str, Command]:
        return {
            "group": self._group,
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "advance": self._advance,
            "fail-over": self._fail_over,
            "status": self._status,
        }

    def _group(self, words: Sequence[str]) -> Iterable[str]:
        names = {"initial-delay": "group_initial_rebalance_delay_ms", "max-size": "group_max_size"}
        _, options = options_of(words)
        self._world = ClassicWorld(**{names[name]: int(value) for name, value in options.items()})
        return []

    def _join(self, words: Sequence[str]) -> Iterable[str]:
        (name,), options = options_of(words)
        protocols = options.pop("protocols", "range").split(",")
        timeouts = {
            "session_timeout_ms": int(options.pop("session", 10_000)),
            "rebalance_timeout_ms": int(options.pop("rebalance", 60_000)),
        }
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = ClassicMember(name, options.pop("instance", None), timeouts)
        assert not options, options
        token = self._world.join(
            member.member_id,
            protocols={protocol: name.encode() for protocol in protocols},
            group_instance_id=member.instance_id,
            **timeouts,
        )
        return self._sent(token, member, "JoinGroup")

    def _sync(self, words: Sequence[str]) -> Iterable[str]:
        (name,), assignments = options_of(words)
        member = self._members[name]
        by_id = {self._members[to].member_id: partitions.encode() for to, partitions in assignments.items()}
        instance = {"group_instance_id": member.instance_id}
        token = self._world.sync(member.member_id, member.generation, by_id, **instance)
        return self._sent(token, member, "SyncGroup")

    def _heartbeat(self, words: Sequence[str]) -> Iterable[str]:
        (name,) = words
        member = self._members[name]
        request = HeartbeatRequest(
            GROUP, generation_id=member.generation, member_id=member.member_id, group_instance_id=member.instance_id
        )
        world = self._world
        token = world.call(lambda token: world.shard.classic.heartbeat(request, world.now_ms))
        return self._sent(token, member, "Heartbeat")

    def _leave(self, words: Sequence[str]) -> Iterable[str]:
        (name,) = words
        member = self._members[name]
        request = LeaveGroupRequest(
            GROUP, members=[MemberIdentity(member.member_id, group_instance_id=member.instance_id)]
        )
        world = self._world
        token = world.call(lambda token: world.shard.classic.leave(request, 5, world.now_ms))
        return self._sent(token, member, "LeaveGroup")

    def _advance(self, words: Sequence[str]) -> Iterable[str]:
        (duration_ms,) = map(int, words)
        self._world.advance(duration_ms)
        return self._responses()

    def _fail_over(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        self._world.restart()
        return self._responses()

    # -- shown ----------------------------------------------------------------------------------------------------

    def _sent(self, token: int, member: ClassicMember, api: str) -> list[str]:
        self._pending[token] = (member, api)
        lines = self._responses()
        return [*lines, f"{member.name}: {api} is parked"] if token in self._pending else lines

    def _responses(self) -> list[str]:
        """Return a line for each response that has come, and let its member learn from it."""
        arrived = [token for token in self._pending if not self._world.is_waiting(token)]
        lines = []
        for token in arrived:
            member, api = self._pending.pop(token)
            response = self._world.take(token)
            lines.append(f"{member.name}: {api} {self._learned(member, response)}")
        return lines

    def _learned(self, member: ClassicMember, response: Any) -> str:
        outcome = response.members[0] if isinstance(response, LeaveGroupResponse) else response
        code = ErrorCode(response.code if isinstance(response, ApiError) else outcome.error_code)
        if isinstance(response, JoinGroupResponse) and response.member_id:
            member.member_id = response.member_id
        if code != ErrorCode.NONE:
            return code.name
        if isinstance(response, JoinGroupResponse):
            member.generation = response.generation_id
            members = ",".join(self._name(each.member_id) for each in response.members)
            skips = "  skip-assignment" if response.skip_assignment else ""
            return (
                f"generation={response.generation_id} protocol={response.protocol_name} "
                f"leader={self._name(response.leader)}{f' members={members}' if members else ''}{skips}"
            )
        if isinstance(response, SyncGroupResponse):
            return f"assignment={response.assignment.decode()}"
        return code.name

    def _name(self, member_id: str) -> str:
        return next((each.name for each in self._members.values() if each.member_id == member_id), "a former member")

    def _status(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        if GROUP not in self._world.shard.groups:
            return ["no group"]
        log = self._world.group.log
        leader = "-" if log.members.leader_id is None else self._name(log.members.leader_id)
        rows = [[self._name(each.member_id), each.instance_id or "-", each.assignment.decode()] for each in log.members]
        title = f"{log.state.value}, generation {log.generation}, protocol {log.protocol_name or '-'}, leader {leader}"
        return [title, *(table("member  instance  assignment", rows) if rows else [])]


class ConsumerGroupCommands:
    """A KIP-848 group.

    topics foo=4 bar=2           the topics of the cluster and their partition counts, from now on
    join A foo bar [instance=i] [rebalance=60000]    A's first heartbeat, or a new beginning: epoch 0, nothing owned
    heartbeat A [keeps]          A's next heartbeat; it has revoked what it was told to, unless it keeps it
    leave A, leave A for-now     the last heartbeat: epoch -1, or -2 of a static member
    advance 5000                 milliseconds pass; what is due is done at their end
    fail-over                    another coordinator loads the log, and begins everybody's session
    status                       the group as its coordinator has it

    A response tells a member's epoch, and its assignment if it has changed; then the types of the records written.
    """

    def __init__(self) -> None:
        self._world = GroupWorld()
        self._members: dict[str, FakeConsumer] = {}

    def commands(self) -> Mapping[str, Command]:
        return {
            "topics": self._topics,
            "join": self._join,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "advance": self._advance,
            "fail-over": self._fail_over,
            "status": self._status,
        }

    def _topics(self, words: Sequence[str]) -> Iterable[str]:
        _, counts = options_of(words)
        offset = self._world.image.provenance.last_offset + 1
        self._world.image = image_of(offset, **{name: int(count) for name, count in counts.items()})
        return []

    def _join(self, words: Sequence[str]) -> Iterable[str]:
        (name, *topics), options = options_of(words)
        fields: dict[str, Any] = {"rebalance_timeout_ms": int(options.pop("rebalance", 60_000))}
        if "instance" in options:
            fields["instance_id"] = options.pop("instance")
        assert not options, options
        member = self._members[name] = FakeConsumer(self._world, name, *topics, **fields)
        return self._response(name, member.join)

    def _heartbeat(self, words: Sequence[str]) -> Iterable[str]:
        name, *rest = words
        member = self._members[name]
        assert rest in ([], ["keeps"]), rest
        if rest:
            return self._response(name, lambda: self._world.send(member.request()))
        return self._response(name, member.beat)

    def _leave(self, words: Sequence[str]) -> Iterable[str]:
        name, *rest = words
        assert rest in ([], ["for-now"]), rest
        return self._response(name, lambda: self._members[name].leave(-2 if rest else -1))

    def _advance(self, words: Sequence[str]) -> Iterable[str]:
        (duration_ms,) = map(int, words)
        return self._written(self._world.pass_time(duration_ms))

    def _fail_over(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        self._world.restart()
        return self._written(self._world.pass_time(0))

    # -- shown ----------------------------------------------------------------------------------------------------

    def _response(self, name: str, send: Callable[[], Any]) -> list[str]:
        self._world.written = []
        try:
            response = send()
        except ApiError as error:
            return [f"{name}: {ErrorCode(error.code).name}: {error.message}"]
        assignment = ""
        if response.assignment is not None:
            owned = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
            assignment = f" assignment={_partitions(owned)}"
        return [f"{name}: epoch={response.member_epoch}{assignment}", *self._written(self._world.written)]

    def _written(self, records: list[Any]) -> list[str]:
        return [f"  written: {' '.join(names_of(records))}"] if records else []

    def _status(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        if "g" not in self._world.groups:
            return ["no group"]
        group = self._world.group()
        log = group.log
        rows = [
            [
                member_id,
                member.instance_id or "-",
                member.member_epoch,
                member.state.name,
                _partitions(member.assigned),
                _partitions(member.pending_revocation),
                _partitions(log.targets.get(member_id, {})),
            ]
            for member_id, member in sorted(log.members.items())
        ]
        title = f"{group.state_name}, group epoch {log.group_epoch}, assignment epoch {log.assignment_epoch}"
        header = "member  instance  epoch  state  assigned  revoking  target"
        return [title, *(table(header, rows) if rows else [])]


def _partitions(by_topic: Mapping[bytes, Iterable[int]]) -> str:
    names = [f"{topic.rstrip(bytes(1)).decode()}-{each}" for topic, those in by_topic.items() for each in sorted(those)]
    return ",".join(sorted(names)) or "-"
