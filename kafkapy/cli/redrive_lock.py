"""One redrive of a dead-letter topic at a time, in the whole cluster: two at once would send its letters twice.

While it runs, a redrive is the static member `redrive` of the consumer group kafkapy-redrive.TOPIC (KIP-848), which
subscribes to nothing. The group's coordinator refuses another member of this name with UNRELEASED_INSTANCE_ID, until
the first one leaves or its session ends: 45 s after a kill, by default. The member's id names the process and the host,
so that the refused one can say who runs, and wait if that process was killed.

    with only_redrive(brokers, topic, note) as check:
        ...
        check()  # now and then: raises RedriveError if the session has ended, and another redrive may have begun

Heartbeats are of our own, so that the end waits for the coordinator's response to the leave: librdkafka does not say
whether a consumer that was closed has left.

Versions: ConsumerGroupHeartbeat 1, the first whose members choose their id.
"""

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafkapy.cli.command_config import CommandConfigError
from kafkapy.cli.committed_offsets import BrokerCalls, CoordinatorError, ask_coordinator, check
from kafkapy.cli.consumer_groups import ConsumerMember, delete_group, describe_consumers
from kafkapy.cli.dead_letters import RedriveError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

GROUP_PREFIX: Final = "kafkapy-redrive."
INSTANCE: Final = "redrive"
VERSION: Final = 1
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
JOIN_S: Final = 20.0
"""More than the coordinator needs to move to another broker."""
SESSION_S: Final = 45
"""group.consumer.session.timeout.ms of a broker, by default."""
SILENT_S: Final = 40.0
"""After so long without a heartbeat a redrive ends: soon after that another one may begin."""
RELEASE_S: Final = 3.0
"""A redrive that is just ending leaves in this time."""
LEAVE_S: Final = 5.0
RETRY_S: Final = 0.3
MEMBER_ID: Final = re.compile(r"(\d{1,9})@(.*)/[0-9a-f]{32}")


@contextmanager
def only_redrive(
    brokers: BrokerCalls, topic: str, note: Callable[[str], None], *, waits: bool = False
) -> Iterator[Callable[[], None]]:
    """Keep other redrives of a topic out. Raises RedriveError if one runs.

    brokers: used by another thread, too, until the end. waits: for the session of a redrive of this host that was
    killed. Without the right to read the group, or in a cluster without its protocol, other redrives are not kept out,
    and `note` gets a line that says so.
    """
    member = _Member(brokers, topic)
    reason = _join(member, note if waits else None)
    if reason:
        note(f"another redrive of {topic} at the same time would send its letters again: {reason}")
        yield lambda: None
        return
    try:
        member.start()
        yield member.check
    finally:
        member.leave()


class _Member:
    """The member of the group: joins, sends heartbeats in a thread of its own, and leaves."""

    def __init__(self, brokers: BrokerCalls, topic: str) -> None:
        self._brokers = brokers
        self.topic = topic
        self.group = GROUP_PREFIX + topic
        self._member_id = f"{os.getpid()}@{socket.gethostname()}/{secrets.token_hex(16)}"
        self._epoch = JOIN_EPOCH
        self._interval_s = 1.0
        self._answered_s = _now_s()
        self._lost = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, name="kafkapy-redrive", daemon=True)

    def join(self) -> None:
        """Join the group. Raises CoordinatorError.

        If a response was lost, and the member has joined after all, it is refused as any other: it leaves first.
        """
        try:
            self._beat(JOIN_EPOCH, JOIN_S)
        except CoordinatorError as error:
            if error.code != ErrorCode.UNRELEASED_INSTANCE_ID:
                raise
            with suppress(CoordinatorError):
                self._beat(LEAVE_EPOCH, 0)
            self._beat(JOIN_EPOCH, JOIN_S)

    def holder(self) -> ConsumerMember | None:
        """Return the member that another redrive is; None if it has left. Raises CoordinatorError."""
        members = describe_consumers(self._brokers, self.group).members
        return next((each for each in members if each.instance_id == INSTANCE), None)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise RedriveError if the session has ended, or may have."""
        silent_s = _now_s() - self._answered_s
        if self._lost or silent_s > SILENT_S:
            reason = self._lost or f"the coordinator of group {self.group} has not answered for {silent_s:.0f} s"
            raise RedriveError(f"another redrive of {self.topic} may have begun: {reason}")

    def leave(self) -> None:
        """Stop the heartbeats, leave the group and delete it: once this returns, another redrive can begin."""
        self._stop.set()
        self._thread.join()
        if not self._lost:
            with suppress(CoordinatorError):  # the session ends by itself, and the group expires
                self._beat(LEAVE_EPOCH, LEAVE_S)
                delete_group(self._brokers, self.group, timeout_s=0)

    def _send_heartbeats(self) -> None:
        while not self._stop.wait(self._interval_s) and not self._lost:
            try:
                self._beat(self._epoch, 0)
            except CoordinatorError as error:
                if error.is_passing:
                    self._interval_s = RETRY_S
                else:
                    self._lost = str(error)

    def _beat(self, epoch: int, timeout_s: float) -> None:
        """Send a heartbeat. Raises CoordinatorError."""
        request = ConsumerGroupHeartbeatRequest(
            self.group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=INSTANCE,
            rebalance_timeout_ms=SESSION_S * 1000,
            subscribed_topic_names=[],
            topic_partitions=[],
        )

        def ask(coordinator: Any) -> ConsumerGroupHeartbeatResponse:
            if epoch == JOIN_EPOCH:
                _check_served(self._brokers, coordinator.node_id)
            response: ConsumerGroupHeartbeatResponse = self._brokers.call(coordinator.node_id, request, VERSION)
            check(response.error_code, response.error_message)
            return response

        asked_s = _now_s()
        response = ask_coordinator(self._brokers, self.group, ask, timeout_s)
        self._answered_s = asked_s  # the session begins later
        self._epoch = response.member_epoch
        self._interval_s = response.heartbeat_interval_ms / 1000


def _now_s() -> float:
    """Return the time since the start of the machine. Its sleep counts: the session ends meanwhile."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _check_served(brokers: BrokerCalls, node_id: int) -> None:
    """Raise CoordinatorError unless a broker serves the heartbeats."""
    served = brokers.call(node_id, ApiVersionsRequest(), 0).api_keys
    if not any(
        each.api_key == ConsumerGroupHeartbeatRequest.API_KEY and each.max_version >= VERSION for each in served
    ):
        check(ErrorCode.UNSUPPORTED_VERSION, "the brokers have no groups of KIP-848")


def _join(member: _Member, note: Callable[[str], None] | None) -> str:
    """Join the group; return why this is not possible, "" if it was. Raises RedriveError.

    note: gets a line if the session of a redrive that was killed is waited for; None: it is not.
    """
    deadline_s = time.monotonic() + RELEASE_S
    while True:
        try:
            member.join()
            return ""
        except CommandConfigError as error:
            return f"group {member.group}: {error}"
        except CoordinatorError as error:
            if error.is_passing:
                raise RedriveError(f"the coordinator of group {member.group} did not answer: {error}") from error
            if error.code != ErrorCode.UNRELEASED_INSTANCE_ID:
                return f"group {member.group}: {error}"
        holder = _holder(member)
        is_dead = holder is not None and _was_killed(holder.member_id)
        if is_dead and note is not None:
            note(f"the last redrive of {member.topic} was killed: waiting up to {SESSION_S} s for its session's end")
            deadline_s, note = time.monotonic() + SESSION_S + RELEASE_S, None
        if time.monotonic() >= deadline_s:
            raise RedriveError(_refusal(member.topic, holder, is_dead=is_dead))
        time.sleep(RETRY_S)


def _holder(member: _Member) -> ConsumerMember | None:
    with suppress(CoordinatorError):
        return member.holder()
    return None


def _was_killed(member_id: str) -> bool:
    """Whether a member was a process of this host that is gone."""
    named = MEMBER_ID.fullmatch(member_id)
    if named is None or named[2] != socket.gethostname() or not int(named[1]):
        return False
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is another user's
    return False


def _refusal(topic: str, holder: ConsumerMember | None, *, is_dead: bool) -> str:
    if is_dead:
        return f"another redrive of {topic} was killed: its session ends after {SESSION_S} s, by default"
    named = None if holder is None else MEMBER_ID.fullmatch(holder.member_id)
    where = f", process {named[1]} on {named[2]}," if named else ""
    return f"another redrive of {topic} runs{where} or was killed within the last {SESSION_S} s"
