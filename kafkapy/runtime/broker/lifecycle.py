"""The broker's registration with the controller: register, catch up, be unfenced, send heartbeats, shut down.

    NOT_RUNNING -> register() -> REGISTERED (fenced) -> unfence() -> RUNNING -> shut_down() -> NOT_RUNNING

Requests go to the active controller (runtime/broker/active_controller.py) and are retried while there is none. The
broker epoch is the offset of the registration record; it distinguishes incarnations of a broker.
Source: KIP-631, KIP-841.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.metadata.brokers import registration_features
from kafkapy.metadata.features import MV_3_7_IV2, MV_4_3_IV0
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.metadata.registrations import Endpoint
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from kafkapy.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from kafkapy.types import Uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.runtime.broker.active_controller import ActiveController

R = TypeVar("R")

RETRY_MS: Final = 100
"""Back-off before a request is sent again that the controller could not answer."""
SHUTDOWN_POLL_MS: Final = 20
"""How often to ask whether the leaderships have moved away."""
SHUTDOWN_TIMEOUT_MS: Final = 5000
"""Time limit of a controlled shutdown; after it the broker stops without the controller's consent.

Deviation: Apache Kafka waits for 5 minutes. Here 5 s, because Docker kills a process that is still there 10 s after the
request to stop, and the next start would have to recover.
"""
MAX_TIMEOUT_S: Final = 24 * 3600.0
"""The longest delay that a loop timer is set to."""
SOON_RETRIED_ERRORS: Final = frozenset(
    (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
)
"""Errors after which a request of the start is sent again in RETRY_MS; others: in broker.heartbeat.interval.ms."""
FINAL_ERRORS: Final = frozenset(
    (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""Errors that end a start.

Deviation: Apache Kafka tries again after these, too, until initial.broker.registration.timeout.ms. Here the start fails
at once, because only a person can change the cluster's id, the directories, the features or the node id.
"""

log = logging.getLogger(__name__)


class LifecycleState(Enum):
    """How far the broker is with the controller: registered, unfenced for the first time, in controlled shutdown."""

    NOT_RUNNING = auto()
    REGISTERED = auto()
    RUNNING = auto()
    SHUTTING_DOWN = auto()


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The identity with which a broker registers at a start.

    endpoints: advertised, by listener name. directories: the ids of those online. previous_broker_epoch: of the last
    clean shutdown, else -1.
    """

    cluster_id: str
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    directories: Sequence[Uuid]
    previous_broker_epoch: int = -1


class BrokerLifecycle:
    """The local broker's registration and its state."""

    def __init__(
        self,
        *,
        controller: "ActiveController",
        config: "BrokerConfig",
        incarnation: Incarnation,
        applied_offset: Callable[[], int] | None = None,
        cordoned_directories: Callable[[], Sequence[Uuid]] = tuple,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`applied_offset`: returns the metadata offset that the broker has applied; by default that of the last image.

        `on_fatal`: called if a failed directory could not be reported within log.dir.failure.timeout.ms.
        """
        self._controller = controller
        self._config = config
        self._registration = _registration(config, incarnation)
        self._applied_offset = applied_offset or (lambda: controller.image.provenance.last_offset)
        self._cordoned_directories = cordoned_directories
        self._on_fatal = on_fatal
        self._offline_directories: list[Uuid] = []
        self._reported_directories: set[Uuid] = set()
        self._deadlines: list[asyncio.TimerHandle] = []
        self._is_due = asyncio.Event()
        """Set to send a heartbeat before the interval is over."""
        self._heartbeats: asyncio.Task[None] | None = None
        self._patience: asyncio.Timeout | None = None
        """The time limit of the controlled shutdown under way."""
        self._is_hurried = False
        self.state = LifecycleState.NOT_RUNNING
        self.broker_epoch = -1
        """-1 until registered."""
        self.refusal: ApiError | None = None
        """The reason why the last request of the start is retried; None once it is answered."""

    async def register(self) -> int:
        """Register with the controller and start to send heartbeats; return the broker epoch.

        Waits while there is no active controller. Raises ApiError for FINAL_ERRORS.
        """
        response = await self._retry_until_answered(self._send_registration)
        self.broker_epoch = response.broker_epoch
        self.state = LifecycleState.REGISTERED
        self._heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats())
        log.info("Successfully registered broker %d with broker epoch %d", self._config.node_id, self.broker_epoch)
        return self.broker_epoch

    async def _send_registration(self) -> BrokerRegistrationResponse:
        return await self._controller.send_request(
            self._registration,
            lambda controller, now_ms: controller.decide_register_broker(self._registration, now_ms, is_local=True),
        )

    def _is_registration_outdated(self) -> bool:
        """Whether metadata.version now registers log directories, and our registration has none."""
        image = self._controller.image
        broker = image.cluster.brokers.get(self._config.node_id)
        level = image.features.levels.get(METADATA_VERSION, 0)
        return level >= MV_3_7_IV2 and broker is not None and not broker.directories

    async def unfence(self) -> None:
        """Ask to be unfenced; return once the controller has agreed. To be called when the logs are loaded.

        Raises ApiError for FINAL_ERRORS.
        """
        assert self.state is LifecycleState.REGISTERED, f"cannot unfence a broker that is {self.state.name}"
        self.state = LifecycleState.RUNNING
        while (await self._retry_until_answered(self._heartbeat)).is_fenced:
            await asyncio.sleep(RETRY_MS / 1000)

    @property
    def missing(self) -> str | None:
        """Why this broker does not serve clients yet, or None."""
        broker = self._controller.image.cluster.brokers.get(self._config.node_id)
        if broker is None or self.state is LifecycleState.NOT_RUNNING:
            return "the broker is not registered"
        if broker.epoch != self.broker_epoch:
            return "the broker was registered again by another process"
        return "the broker is fenced" if broker.fenced else None

    async def shut_down(self) -> None:
        """Shut down in an orderly way: hand over leaderships, become fenced, stop the heartbeats.

        Gives up after SHUTDOWN_TIMEOUT_MS, at `hurry`, or if the controller cannot answer; then the session expires by
        itself.
        """
        was_known = self.state in (LifecycleState.REGISTERED, LifecycleState.RUNNING)
        self.state = LifecycleState.SHUTTING_DOWN
        await self._stop_heartbeats()
        if was_known and self._config.node.controlled_shutdown_enable:
            try:
                async with asyncio.timeout(0 if self._is_hurried else SHUTDOWN_TIMEOUT_MS / 1000) as self._patience:
                    await self._leave()
            except TimeoutError:
                after = "as it was asked to hurry" if self._is_hurried else f"in {SHUTDOWN_TIMEOUT_MS} ms"
                log.warning("Controlled shutdown was not finished %s", after)
            except ApiError as error:
                log.warning("Controlled shutdown was not finished: %s", error)
            self._patience = None
        self.state = LifecycleState.NOT_RUNNING

    def hurry(self) -> None:
        """Stop waiting for the controller, for example because it is known that it will not answer."""
        self._is_hurried = True
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Stop the heartbeats without informing the controller."""
        await self._stop_heartbeats()
        self.state = LifecycleState.NOT_RUNNING

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids reserved for this broker. Raises ApiError."""
        from kafkapy.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.broker_epoch)
        response = await self._controller.send_request(
            request, lambda controller, _: controller.decide_allocate_producer_ids(request)
        )
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    def directory_failed(self, directory: Uuid) -> None:
        """Report at once that a log directory went offline. To be called on the event loop.

        If the report fails for log.dir.failure.timeout.ms, the broker must stop: the controller may still treat it as
        leader of the lost partitions.
        """
        if directory in self._offline_directories:
            return
        self._offline_directories.append(directory)
        self._is_due.set()
        timeout_s = self._config.log.log_dir_failure_timeout_ms / 1000
        self._deadlines.append(
            asyncio.get_running_loop().call_later(min(timeout_s, MAX_TIMEOUT_S), self._check_reported, directory)
        )

    def _check_reported(self, directory: Uuid) -> None:
        if directory not in self._reported_directories and self._on_fatal is not None:
            message = f"couldn't communicate offline log dir {uuid_to_string(directory)} with controllers"
            self._on_fatal(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message))

    def cordoned_changed(self) -> None:
        """Report the cordoned directories at once."""
        self._is_due.set()

    async def _leave(self) -> None:
        """Send shutdown heartbeats until the controller agrees, also to a new active controller."""
        while True:
            try:
                if (await self._heartbeat()).should_shut_down:
                    return
            except ApiError as error:
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                    raise
            await asyncio.sleep(SHUTDOWN_POLL_MS / 1000)

    async def _stop_heartbeats(self) -> None:
        for deadline in self._deadlines:
            deadline.cancel()
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def _interval_s(self) -> float:
        return self._config.quorum.broker_heartbeat_interval_ms / 1000

    async def _send_heartbeats(self) -> None:
        logged = ""
        """The error of the last heartbeat: each is logged once."""
        while True:
            with contextlib.suppress(TimeoutError):  # wait_for would swallow a stop that comes as the event is set
                async with asyncio.timeout(self._interval_s):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                if self._is_registration_outdated():
                    await self._send_registration()
                response = await self._heartbeat()
            except ApiError as error:
                if str(error) != logged:
                    log.warning("A broker heartbeat failed, trying again: %s", error)
                logged = str(error)
                continue
            except Exception:
                log.exception("A broker heartbeat failed unexpectedly, trying again")
                continue
            if logged:
                log.info("Broker heartbeats are answered again")
            logged = ""
            if response.is_fenced and self.state is LifecycleState.RUNNING:
                log.warning("Broker %d is fenced; asking to be unfenced", self._config.node_id)

    async def _heartbeat(self) -> BrokerHeartbeatResponse:
        """Send a heartbeat. It has a time limit, as it renews the session when it arrives, not when it is answered.

        Its response waits until all that was decided before is committed: with 20,000 partitions on busy cores, what
        follows from an expired session takes longer than the next session.
        """
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=self.state is LifecycleState.REGISTERED,
            want_shut_down=self.state is LifecycleState.SHUTTING_DOWN,
            offline_log_dirs=list(self._offline_directories),
            cordoned_log_dirs=self._cordoned(),
        )
        try:
            response = await self._controller.send_request(
                request,
                lambda controller, now_ms: controller.decide_heartbeat(request, now_ms),
                may_interrupt=True,
                timeout_ms=self._config.quorum.broker_session_timeout_ms // 2,  # as new_heartbeat_channel
            )
        except ApiError as error:
            if error.code != ErrorCode.STALE_BROKER_EPOCH:
                raise
            raise self._superseded() from error
        self._reported_directories.update(request.offline_log_dirs)
        return response

    def _superseded(self) -> ApiError:
        """Return the error of a broker whose registration is no longer the one of its id."""
        node_id = self._config.node_id
        return ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"another process has registered with node.id={node_id} after this one, or broker {node_id} was "
            f"unregistered: broker epoch {self.broker_epoch} is no longer valid. End the process that should not have "
            "this id, or give it another one and other log.dirs. Then start this one again",
        )

    def _cordoned(self) -> list[Uuid] | None:
        """Return the cordoned directories for a heartbeat; None if not known yet, or at older levels."""
        level = self._controller.image.features.levels.get(METADATA_VERSION, 0)
        is_known = self.state is not LifecycleState.REGISTERED
        return list(self._cordoned_directories()) if is_known and level >= MV_4_3_IV0 else None

    async def _retry_until_answered(self, send: Callable[[], Awaitable[R]]) -> R:
        """Retry until there is no error, or one of FINAL_ERRORS; log each reason once.

        A broker that was killed waits here until its previous session expires, as in Apache Kafka: until then another
        process may have its id (DUPLICATE_BROKER_REGISTRATION). One without the right to register
        (CLUSTER_AUTHORIZATION_FAILED) waits until it is granted.
        """
        while True:
            try:
                response = await send()
            except ApiError as error:
                if error.code in FINAL_ERRORS:
                    raise
                if str(error) != str(self.refusal):
                    log.info("No response from the controller yet, trying again: %s", error)
                self.refusal = error
            else:
                self.refusal = None
                return response
            is_soon = self.refusal.code in SOON_RETRIED_ERRORS
            await asyncio.sleep(RETRY_MS / 1000 if is_soon else self._interval_s)


def _registration(config: "BrokerConfig", incarnation: Incarnation) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=incarnation.cluster_id,
        incarnation_id=incarnation.incarnation_id,
        listeners=[
            Listener(name=name, host=point.host, port=point.port, security_protocol=point.security_protocol)
            for name, point in incarnation.endpoints.items()
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in registration_features().items()
        ],
        rack=config.node.broker_rack,
        log_dirs=sorted(incarnation.directories),
        previous_broker_epoch=incarnation.previous_broker_epoch,
    )
