"""The controller's table of brokers and controllers: registration, heartbeats, fencing, controlled shutdown.

Registrations are replayed from the log. Heartbeat sessions are not in the log: only the active controller has them, and
a new one starts with a full session for each unfenced broker. Source: KIP-631, KIP-841, KIP-858, KIP-966.

A broker that stops says so in its heartbeats (want_shut_down). The controller then gives its leaderships to other
replicas. The broker may stop when it has none left, and all other active brokers have applied the metadata that moved
them, so that clients find the new leaders. A response with should_shut_down says that. controller.py decides the
records of each change of state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.metadata.features import KNOWN_FEATURES, MV_3_7_IV0, MV_4_4_IV2, WORKING_FEATURES, FeatureControl
from kafkapy.metadata.image import METADATA_VERSION, MetadataImage
from kafkapy.metadata.registrations import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    RESERVED_DIRECTORIES,
    BrokerRegistration,
    ControllerRegistration,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from kafkapy.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from kafkapy.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from kafkapy.protocol.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from kafkapy.types import Uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.metadata.placement import UsableBroker
    from kafkapy.protocol.messages.fence_broker_record import FenceBrokerRecord
    from kafkapy.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
    from kafkapy.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
    from kafkapy.protocol.messages.unregister_controller_record import UnregisterControllerRecord

SESSION_TIMEOUT_MS: Final = 9000
"""Kafka's default of broker.session.timeout.ms."""
NO_OFFSET: Final = -1
FENCE: Final = 1
UNFENCE: Final = -1


class BrokerControlState(Enum):
    """A broker's state, as the controller sees it. Not its own, which is in /metrics (server/admin/broker_state.py)."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


@dataclass(slots=True)
class Session:
    """The active controller's state of a broker's heartbeats."""

    last_heartbeat_ms: int | None
    """Monotonic; None before the first heartbeat."""
    metadata_offset: int = NO_OFFSET
    """The last metadata offset that the broker has applied, as its heartbeat reports."""
    controlled_shutdown_offset: int = NO_OFFSET
    """The offset of the last record that moved its leaderships; NO_OFFSET if it is not shutting down."""


class BrokerControl:
    """The registered brokers and controllers, including uncommitted registrations."""

    def __init__(self, features: FeatureControl, cluster_id: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self._features = features
        self._cluster_id = cluster_id
        self._session_timeout_ms = session_timeout_ms
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self._sessions: dict[int, Session] = {}
        self._registration_offsets: dict[int, int] = {}

    def load(self, image: MetadataImage, now_ms: int) -> None:
        """Load a committed image; each unfenced broker gets a session that starts now."""
        self.brokers = dict(image.cluster.brokers)
        self.controllers = dict(image.cluster.controllers)
        self._registration_offsets = {broker.id: broker.epoch for broker in self.brokers.values()}
        self._sessions = {
            broker.id: Session(last_heartbeat_ms=None if broker.fenced else now_ms) for broker in self.brokers.values()
        }

    # -- queries --------------------------------------------------------------------------------------------------

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead and join an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online_directory(self, broker_id: int, directory: Uuid) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)

    def default_directory(self, broker_id: int) -> Uuid:
        """Return the directory of a new replica: the broker's only one, or DIRECTORY_UNASSIGNED for it to choose.

        DIRECTORY_MIGRATING for a broker registered without directories.
        """
        broker = self.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.directories:
            return DIRECTORY_MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED

    def usable_brokers(self) -> "Iterator[UsableBroker]":
        """Yield the brokers that can get new replicas."""
        from kafkapy.metadata.placement import UsableBroker

        for broker in self.brokers.values():
            if broker.has_uncordoned_directory and not self._is_shutting_down(broker.id):
                yield UsableBroker(broker.id, broker.rack, broker.fenced)

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Return a request's broker. Raises ApiError STALE_BROKER_EPOCH unless it is registered with this epoch."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    # -- registration ---------------------------------------------------------------------------------------------

    def registration_record(
        self, request: BrokerRegistrationRequest, *, next_offset: int, now_ms: int, is_local: bool = False
    ) -> RegisterBrokerRecord:
        """Return the record that registers a broker; a new incarnation gets the epoch `next_offset`.

        `is_local`: the broker runs in the controller's process, which has locked the directories of the request. An
        incarnation that registers again keeps its epoch, its fencing and its shutdown state. Raises ApiError.
        """
        self._check_cluster(request)
        self._check_session(request, now_ms, is_local=is_local)
        self._check_registration(request)
        existing = self.brokers.get(request.broker_id)
        is_same = existing is not None and existing.incarnation_id == request.incarnation_id
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            is_migrating_zk_broker=False,
            incarnation_id=request.incarnation_id,
            broker_epoch=next_offset,
            end_points=[
                BrokerEndpoint(each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in request.listeners
            ],
            features=[
                BrokerFeature(
                    each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
            rack=request.rack,
            log_dirs=list(request.log_dirs) if self._features.has_directory_assignment else [],
        )
        if is_same and existing is not None:  # its leaderships and heartbeats go on: a new epoch would fence them off
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            record.broker_epoch = existing.epoch
        assert existing is None or record.broker_epoch >= existing.epoch, f"{existing} would come back after this one"
        return record

    def is_new_incarnation(self, request: BrokerRegistrationRequest) -> bool:
        existing = self.brokers.get(request.broker_id)
        return existing is None or existing.incarnation_id != request.incarnation_id

    def _check_cluster(self, request: BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )

    def _check_session(self, request: BrokerRegistrationRequest, now_ms: int, *, is_local: bool) -> None:
        if not self.is_new_incarnation(request) or not self.has_valid_session(request.broker_id, now_ms):
            return
        former = self.brokers[request.broker_id]
        has_ended = is_local or request.previous_broker_epoch == former.epoch
        if not (has_ended and any(directory in request.log_dirs for directory in former.directories)):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )

    def _check_registration(self, request: BrokerRegistrationRequest) -> None:
        if request.is_migrating_zk_broker:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
        if self._features.has_directory_assignment:
            self._check_directories(request)
        self._check_features(request)

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = request.log_dirs
        if not directories:
            raise _invalid_registration("No directories specified in request")
        if any(directory in RESERVED_DIRECTORIES for directory in directories):
            raise _invalid_registration("Reserved directory ID in request")
        if len(set(directories)) != len(directories):
            raise _invalid_registration("Duplicate directory ID in request")
        for broker in self.brokers.values():
            for directory in directories:
                if broker.id != request.broker_id and directory in broker.directories:
                    raise _invalid_registration(
                        f"Broker {broker.id} is already registered with directory {uuid_to_string(directory)}"
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Raise ApiError UNSUPPORTED_VERSION unless the broker supports every finalized level; unnamed features mean 0.

        INVALID_REGISTRATION without metadata.version. The request's own features are checked before that.
        """
        ranges = {
            feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
        }
        levels = self._features.levels
        for name, supported in ranges.items():
            _check_level(name, levels.get(name, 0), supported)
        if METADATA_VERSION not in ranges:
            raise _invalid_registration(f"Request features do not contain '{METADATA_VERSION}'")
        for name, level in levels.items():
            if name not in ranges:
                _check_level(name, level, (0, 0))

    def controller_record(self, request: ControllerRegistrationRequest) -> RegisterControllerRecord:
        """Return the record that registers a controller. Raises ApiError if metadata.version does not support it."""
        if self._features.metadata_version < MV_3_7_IV0:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller registrations.",
            )
        return RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[
                ControllerEndpoint(each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in request.listeners
            ],
            features=[
                ControllerFeature(
                    each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )

    def controller_removal(self, controller_id: int) -> "UnregisterControllerRecord":
        """Return the record that unregisters a controller. Raises ApiError."""
        from kafkapy.protocol.messages.unregister_controller_record import UnregisterControllerRecord

        if self._features.metadata_version < MV_4_4_IV2:
            message = "The current MetadataVersion is too old to support controller unregistration."
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        if controller_id not in self.controllers:
            message = f"Controller ID {controller_id} is not currently registered."
            raise ApiError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)
        return UnregisterControllerRecord(controller_id=controller_id)

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker sent a heartbeat within the session timeout."""
        session = self._sessions.get(broker_id)
        if session is None or session.last_heartbeat_ms is None:
            return False
        return now_ms - session.last_heartbeat_ms <= self._session_timeout_ms

    def heartbeat_ages_ms(self, now_ms: int) -> dict[int, int]:
        """Return how long ago each broker has sent its last heartbeat, by broker id."""
        return {
            broker_id: now_ms - session.last_heartbeat_ms
            for broker_id, session in self._sessions.items()
            if session.last_heartbeat_ms is not None
        }

    def next_state(
        self, request: BrokerHeartbeatRequest, has_leaderships: Callable[[], bool]
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Return a broker's state, and its next state after a heartbeat.

        FENCED -> UNFENCED                      it has applied its own registration, and does not ask to stay fenced
        FENCED -> SHUTDOWN_NOW                  it wants to stop
        UNFENCED -> CONTROLLED_SHUTDOWN         it wants to stop, and leads partitions
        UNFENCED -> SHUTDOWN_NOW                it wants to stop, and leads none
        UNFENCED -> FENCED                      it asks to be fenced
        CONTROLLED_SHUTDOWN -> SHUTDOWN_NOW     it leads none, and the other brokers know it
        """
        current = self.state(request.broker_id)
        if current is BrokerControlState.FENCED:
            return current, self._next_state_of_fenced(request)
        if current is BrokerControlState.UNFENCED:
            return current, _next_state_of_unfenced(request, has_leaderships)
        return current, self._next_state_in_shutdown(request.broker_id, has_leaderships)

    def state(self, broker_id: int) -> BrokerControlState:
        if self._is_shutting_down(broker_id):
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.brokers[broker_id].fenced else BrokerControlState.UNFENCED

    def renew_session(self, broker_id: int, now_ms: int) -> None:
        """Restart a broker's session, even if its heartbeat fails later."""
        self._sessions[broker_id].last_heartbeat_ms = now_ms

    def record_heartbeat(
        self, request: BrokerHeartbeatRequest, next_state: BrokerControlState, *, last_offset: int
    ) -> None:
        """Keep what a decided heartbeat says in the broker's session, which is not in the log.

        `last_offset`: that of the decision's last record. A broker in controlled shutdown may stop when all other
        active brokers have applied the metadata up to there.
        """
        session = self._sessions[request.broker_id]
        session.metadata_offset = request.current_metadata_offset
        if next_state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW):
            session.controlled_shutdown_offset = NO_OFFSET
        elif next_state is BrokerControlState.CONTROLLED_SHUTDOWN and session.controlled_shutdown_offset == NO_OFFSET:
            session.controlled_shutdown_offset = last_offset

    def is_caught_up(self, request: BrokerHeartbeatRequest) -> bool:
        """Whether the broker has applied its own registration."""
        return request.current_metadata_offset >= self._registration_offsets[request.broker_id]

    def expired_brokers(self, now_ms: int) -> list[int]:
        """Return the unfenced brokers without a heartbeat for broker.session.timeout.ms, which are to be fenced."""
        return [
            broker.id
            for broker in self.brokers.values()
            if not broker.fenced and not self.has_valid_session(broker.id, now_ms)
        ]

    def _next_state_of_fenced(self, request: BrokerHeartbeatRequest) -> BrokerControlState:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        if not request.want_fence and self.is_caught_up(request):
            return BrokerControlState.UNFENCED
        return BrokerControlState.FENCED

    def _next_state_in_shutdown(self, broker_id: int, has_leaderships: Callable[[], bool]) -> BrokerControlState:
        if has_leaderships():
            return BrokerControlState.CONTROLLED_SHUTDOWN
        if self._sessions[broker_id].controlled_shutdown_offset <= self._lowest_active_offset():
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.CONTROLLED_SHUTDOWN

    def _lowest_active_offset(self) -> float:
        """Return the lowest metadata offset that the other active brokers have applied, infinity without any."""
        offsets = (
            self._sessions[broker.id].metadata_offset
            for broker in self.brokers.values()
            if not broker.fenced and not self._is_shutting_down(broker.id)
        )
        return min(offsets, default=float("inf"))

    def _is_shutting_down(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.controlled_shutdown_offset != NO_OFFSET

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay_registration(self, record: RegisterBrokerRecord, offset: int) -> None:
        previous = self.brokers.get(record.broker_id)
        assert previous is None or record.broker_epoch >= previous.epoch, f"an older incarnation of {previous}"
        self.brokers[record.broker_id] = BrokerRegistration.from_record(record)
        self._registration_offsets[record.broker_id] = offset
        if previous is None or previous.incarnation_id != record.incarnation_id:
            self._sessions[record.broker_id] = Session(last_heartbeat_ms=None)
        assert record.broker_id in self._sessions, f"broker {record.broker_id} is registered without a session"

    def replay_unregistration(self, record: "UnregisterBrokerRecord") -> None:
        self._at_epoch(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        assert record.broker_id in self._sessions, f"broker {record.broker_id} was registered without a session"
        del self._registration_offsets[record.broker_id]
        del self._sessions[record.broker_id]

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        self.brokers[record.broker_id] = self._at_epoch(record.broker_id, record.broker_epoch).merge(record)

    def replay_fence(self, record: "FenceBrokerRecord") -> None:
        self.brokers[record.id] = self._at_epoch(record.id, record.epoch).with_fenced(True)

    def replay_unfence(self, record: "UnfenceBrokerRecord") -> None:
        self.brokers[record.id] = self._at_epoch(record.id, record.epoch).with_fenced(False)

    def replay_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_controller_removal(self, record: "UnregisterControllerRecord") -> None:
        removed = self.controllers.pop(record.controller_id, None)
        assert removed is not None, f"controller {record.controller_id} is not registered"

    def _at_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.epoch == broker_epoch, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        return broker


def registration_features() -> Mapping[str, tuple[int, int]]:
    """Return the feature ranges with which kafkapy's brokers register: the levels that they serve."""
    return {name: (levels.min_version, levels.max_version) for name, levels in WORKING_FEATURES.items()}


def controller_features() -> Mapping[str, tuple[int, int]]:
    """Return the feature ranges with which kafkapy's controllers register: all levels that they can replay."""
    return {name: (levels.min_version, levels.max_version) for name, levels in KNOWN_FEATURES.items()}


def change_record(broker: BrokerRegistration, **changes: Any) -> BrokerRegistrationChangeRecord:
    """Return the record that changes a broker: fenced=FENCE or UNFENCE, in_controlled_shutdown=1, log_dirs, ..."""
    return BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, **changes)


def online_directories(broker: BrokerRegistration, offline: Iterable[Uuid]) -> list[Uuid]:
    gone = set(offline)
    return [directory for directory in broker.directories if directory not in gone]


def _next_state_of_unfenced(request: BrokerHeartbeatRequest, has_leaderships: Callable[[], bool]) -> BrokerControlState:
    if request.want_fence:
        return BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
    if not request.want_shut_down:
        return BrokerControlState.UNFENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if has_leaderships() else BrokerControlState.SHUTDOWN_NOW


def _check_level(name: str, level: int, supported: tuple[int, int]) -> None:
    """Raise ApiError UNSUPPORTED_VERSION if a broker does not support a finalized level; see _check_features."""
    low, high = supported
    if not low <= level <= high:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {low} and {high}, inclusive.",
        )


def _invalid_registration(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGISTRATION, message)
