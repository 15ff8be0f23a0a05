"""Which registry writes: registries of one group id elect a leader by Kafka's group protocol, as Confluent's do.

Members join with their address; the member that Kafka makes the group's leader names one of them, the one that leads
already or else the one with the smallest URL, and all learn it from SyncGroup. Confluent's registry can be in one group
with these: protocol type `sr`, protocol `v0`, JSON. Whoever misses its heartbeats leads no more.
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
SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 30_000
HEARTBEAT_S: Final = 3.0
HEARTBEAT_TIMEOUT_S: Final = 5.0
"""With the time before it less than the session's: who gets no response leads no more when others may."""
JOIN_TIMEOUT_S: Final = 310.0
"""Members of Confluent's may let the others wait for 300 s."""
RETRY_S: Final = 0.1
DUPLICATE_URLS: Final = 1

logger = logging.getLogger("kafkapy.registry")


@dataclass(frozen=True, slots=True)
class Identity:
    """Where others reach a registry; `leads`: it does already; `eligible`: it may."""

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


def assigned(members: Mapping[str, Identity]) -> bytes:
    """Return the assignment that every member gets: who leads, or that two have one URL."""
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
    """A member of the group, in a thread. `leader`: the one that leads, None while it is not known."""

    def __init__(self, cluster: Cluster, own: Identity, group: str = DEFAULT_GROUP) -> None:
        self._cluster = cluster
        self._own = own
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._connection: Connection | None = None
        self._is_stopping = threading.Event()
        self._known = threading.Condition()
        self._leader: Identity | None = None
        self._retries = RetryLog(logger, f"The group {group}")
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    @property
    def leader(self) -> Identity | None:
        with self._known:
            return self._leader

    @property
    def is_leader(self) -> bool:
        leader = self.leader
        return leader is not None and leader.url == self._own.url

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
            self._thread.join(HEARTBEAT_S)
        self._set_leader(None)

    def _set_leader(self, leader: Identity | None) -> None:
        with self._known:
            before, self._leader = self._leader, leader
            self._known.notify_all()
        if leader is not None and (before is None or before.url != leader.url):
            logger.info("The leader of the group %s is %s", self._group, leader.url)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                with self._cluster.to_coordinator(self._group) as connection:
                    self._connection = connection
                    self._stay(connection)
            except ClusterError as error:
                self._set_leader(None)
                if not self._is_stopping.is_set():
                    if not error.code.is_retriable:
                        self._retries.on_failure(error, time.monotonic())
                    self._is_stopping.wait(RETRY_S)
            finally:
                self._connection = None

    def _stay(self, connection: Connection) -> None:
        """Be a member until the registry stops. Raises ClusterError."""
        while not self._is_stopping.is_set():
            if not self._join(connection):
                self._is_stopping.wait(RETRY_S)
                continue
            while not self._is_stopping.wait(HEARTBEAT_S):
                beat = HeartbeatRequest(self._group, generation_id=self._generation, member_id=self._member_id)
                code = call(connection, beat, HEARTBEAT_VERSION, HEARTBEAT_TIMEOUT_S).error_code
                if code:
                    self._on_error(ErrorCode(code))
                    break
        leave = LeaveGroupRequest(self._group, member_id=self._member_id)
        call(connection, leave, LEAVE_VERSION)

    def _on_error(self, code: ErrorCode) -> None:
        """A rebalance keeps the leader, as long as it is not known to be another one."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self._set_leader(None)
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
            return
        check(code, "the heartbeat")

    def _join(self, connection: Connection) -> bool:
        """Join and learn who leads; return False if it has to be tried again. Raises ClusterError."""
        own = replace(self._own, leads=self.is_leader)
        protocol = JoinGroupRequestProtocol(PROTOCOL, metadata=dumps(own.json()).encode())
        request = JoinGroupRequest(
            self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        joined = call(connection, request, JOIN_VERSION, JOIN_TIMEOUT_S)
        if joined.error_code:
            self._on_error(ErrorCode(joined.error_code))
            return False
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = {each.member_id: Identity.parse(parse_json(bytes(each.metadata))) for each in joined.members}
            # one whose identity cannot be read, a later version perhaps, is told who leads, and never leads itself
            assignment = assigned({name: each for name, each in members.items() if each is not None})
            assignments = [SyncGroupRequestAssignment(name, assignment=assignment) for name in members]
        sync = SyncGroupRequest(
            self._group, generation_id=self._generation, member_id=self._member_id, assignments=assignments
        )
        synced = call(connection, sync, SYNC_VERSION, JOIN_TIMEOUT_S)
        if synced.error_code:
            self._on_error(ErrorCode(synced.error_code))
            return False
        self._retries.on_success()
        self._use(bytes(synced.assignment))
        return True

    def _use(self, assignment: bytes) -> None:
        found = parse_json(assignment) or {}
        if found.get("error") == DUPLICATE_URLS:
            logger.error("Two registries of the group %s have one URL: give each its own by --advertise", self._group)
            self._set_leader(None)
            return
        self._set_leader(Identity.parse(found.get("master_identity")))
