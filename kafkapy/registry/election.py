"""Elects the registry that writes: registries of one group id choose a leader by Kafka's group protocol.

Members join with their address. The group's leader, in Kafka's sense, names the leading registry in SyncGroup: the one
that leads already, else the one with the smallest URL. Confluent's registry can be in one group with these: protocol
type `sr`, protocol `v0`, JSON.

Two registries never write at a time: a leader may write for LEASE_S after a heartbeat that was answered, which is less
than its session. So also a leader whose process was suspended stops writing before the coordinator removes it. What
it sent before that is kept out by fence.py.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kafkapy.cli.addresses import host_port
from kafkapy.cli.connection import Connection
from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.registry.cluster import Cluster, ClusterError, call, check
from kafkapy.registry.records import dumps, parse_json
from kafkapy.registry.retries import RetryLog

DEFAULT_GROUP: Final = "schema-registry"
PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
JOIN_VERSION: Final = 3
SYNC_VERSION: Final = 2
HEARTBEAT_VERSION: Final = 2
LEAVE_VERSION: Final = 2
SESSION_TIMEOUT_MS: Final = 6_000
"""The shortest that brokers allow by default (group.min.session.timeout.ms). After a leader was killed, another one
leads after this time and one heartbeat."""
LONGER_SESSION_TIMEOUT_MS: Final = 10_000
"""For brokers that do not allow the shorter one; Confluent's."""
REBALANCE_TIMEOUT_MS: Final = 30_000
HEARTBEAT_S: Final = 1.0
HEARTBEAT_TIMEOUT_S: Final = 4.0
"""The time for a heartbeat's response. With HEARTBEAT_S it is less than the session."""
LEASE_S: Final = HEARTBEAT_S + HEARTBEAT_TIMEOUT_S
"""For so long after an answered heartbeat was sent, no other registry can lead."""
JOIN_TIMEOUT_S: Final = 310.0
"""Confluent's registries may need 300 s to join again after a rebalance."""
STOP_S: Final = 3.0
RETRY_S: Final = 0.1
DUPLICATE_URLS: Final = 1

logger = logging.getLogger("kafkapy.registry")


@dataclass(frozen=True, slots=True)
class Identity:
    """A registry as the others see it: its address; `leads`: it is the leader now; `eligible`: it may become leader."""

    scheme: str
    host: str
    port: int
    eligible: bool = True
    leads: bool = False

    @property
    def url(self) -> str:
        return f"{self.scheme}://{host_port(self.host, self.port)}"

    def json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.leads,
        }

    @classmethod
    def parse(cls, found: Any) -> "Identity | None":
        if not isinstance(found, Mapping):
            return None
        host, port = found.get("host"), found.get("port")
        if not isinstance(host, str) or not isinstance(port, int):
            return None
        eligible = bool(found.get("master_eligibility", True))
        return cls(str(found.get("scheme") or "http"), host, port, eligible, bool(found.get("leader")))


def assignment_of(members: Mapping[str, Identity]) -> bytes:
    """Return the assignment that every member gets: the leader's address, or that two members have one URL."""
    urls = {each.url for each in members.values()}
    eligible = {name: each for name, each in members.items() if each.eligible}
    leading = [name for name, each in eligible.items() if each.leads]
    chosen = min(eligible, key=lambda name: eligible[name].url, default=None)
    if len(leading) == 1:
        chosen = leading[0]
    found: dict[str, Any] = {"error": 0 if len(urls) == len(members) else DUPLICATE_URLS}
    if chosen is not None:
        found |= {"master": chosen, "master_identity": eligible[chosen].json()}
    return dumps({**found, "version": 1}).encode()


class Election:
    """This registry's membership in the group, in a thread. `leader`: the leading registry, None if unknown."""

    def __init__(self, cluster: Cluster, own: Identity, group: str = DEFAULT_GROUP) -> None:
        self._cluster = cluster
        self._own = own
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._session_timeout_ms = SESSION_TIMEOUT_MS
        self._connection: Connection | None = None
        self._is_stopping = threading.Event()
        self._confirmed_s = -LEASE_S
        self._known = threading.Condition()
        self._leader: Identity | None = None
        self.term = 0
        """How often this registry has become the leader."""
        self._retries = RetryLog(logger, f"The group {group}")
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    @property
    def leader(self) -> Identity | None:
        with self._known:
            return self._leader

    @property
    def is_leader(self) -> bool:
        return self._is_own(self.leader)

    def _is_own(self, leader: Identity | None) -> bool:
        return leader is not None and leader.url == self._own.url

    @property
    def may_write(self) -> bool:
        """Whether this registry leads and no other one can lead yet, also while it waits in a rebalance.

        A request to join that has not arrived, or whose response is lost, does not keep a member in the group.
        """
        return self.is_leader and time.monotonic() < self._confirmed_s + LEASE_S

    def start(self) -> None:
        self._thread.start()

    def await_leader(self, timeout_s: float) -> Identity | None:
        """Return the leader; None if there is none in time."""
        with self._known:
            self._known.wait_for(lambda: self._leader is not None or self._is_stopping.is_set(), timeout_s)
            return self._leader

    def stop(self) -> None:
        """Leave the group: another member leads at once."""
        self._is_stopping.set()
        connection = self._connection
        if connection is not None and not self._member_id:
            connection.abort()  # it waits for its first join
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._set_leader(None)

    def _set_leader(self, leader: Identity | None) -> None:
        with self._known:
            before, self._leader = self._leader, leader
            if self._is_own(leader) and not self._is_own(before):
                self.term += 1
            self._known.notify_all()
        if leader is not None and (before is None or before.url != leader.url):
            logger.info("The leader of the group %s is %s", self._group, leader.url)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                with self._cluster.to_coordinator(self._group) as connection:
                    self._connection = connection
                    self._remain_member(connection)
            except ClusterError as error:
                self._set_leader(None)
                if not self._is_stopping.is_set():
                    if not error.code.is_retriable:
                        self._retries.on_failure(error, time.monotonic())
                    self._is_stopping.wait(RETRY_S)
            finally:
                self._connection = None

    def _remain_member(self, connection: Connection) -> None:
        """Join, send heartbeats, and join again, until the registry stops; then leave. Raises ClusterError."""
        while not self._is_stopping.is_set():
            if not self._join(connection):
                self._is_stopping.wait(RETRY_S)
                continue
            while not self._is_stopping.wait(HEARTBEAT_S):
                beat = HeartbeatRequest(self._group, generation_id=self._generation, member_id=self._member_id)
                sent_s = time.monotonic()
                code = call(connection, beat, HEARTBEAT_VERSION, HEARTBEAT_TIMEOUT_S).error_code
                if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):  # after both the session goes on
                    self._confirmed_s = sent_s
                if code:
                    self._on_error(ErrorCode(code))
                    break
        leave = LeaveGroupRequest(self._group, member_id=self._member_id)
        call(connection, leave, LEAVE_VERSION)

    def _on_error(self, code: ErrorCode) -> None:
        """Handle an error of the group protocol. The known leader stays only if the error is that of a rebalance."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self._set_leader(None)
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
            return
        check(code, "the heartbeat")

    def _join(self, connection: Connection) -> bool:
        """Join the group and apply its leader; return False if that has to be tried again. Raises ClusterError."""
        own = replace(self._own, leads=self.is_leader)
        protocol = JoinGroupRequestProtocol(PROTOCOL, metadata=dumps(own.json()).encode())
        request = JoinGroupRequest(
            self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        joined = call(connection, request, JOIN_VERSION, JOIN_TIMEOUT_S)
        if joined.error_code == ErrorCode.INVALID_SESSION_TIMEOUT and self._session_timeout_ms == SESSION_TIMEOUT_MS:
            self._session_timeout_ms = LONGER_SESSION_TIMEOUT_MS
            return False
        if joined.error_code:
            self._on_error(ErrorCode(joined.error_code))
            return False
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = {each.member_id: Identity.parse(parse_json(bytes(each.metadata))) for each in joined.members}
            # A member whose identity cannot be read (perhaps of a later version) gets the assignment, but never leads.
            assignment = assignment_of({name: each for name, each in members.items() if each is not None})
            assignments = [SyncGroupRequestAssignment(name, assignment=assignment) for name in members]
        sync = SyncGroupRequest(
            self._group, generation_id=self._generation, member_id=self._member_id, assignments=assignments
        )
        sent_s = time.monotonic()
        synced = call(connection, sync, SYNC_VERSION, JOIN_TIMEOUT_S)
        if synced.error_code:
            self._on_error(ErrorCode(synced.error_code))
            return False
        self._confirmed_s = sent_s
        self._retries.on_success()
        self._apply_assignment(bytes(synced.assignment))
        return True

    def _apply_assignment(self, assignment: bytes) -> None:
        found = parse_json(assignment) or {}
        if found.get("error") == DUPLICATE_URLS:
            logger.error("Two registries of the group %s have one URL: give each its own by --advertise", self._group)
            self._set_leader(None)
            return
        self._set_leader(Identity.parse(found.get("master_identity")))
