"""The active controller's tables, and its decisions on requests: request -> Decision(records, response).

A decision does not change the tables; only `replay(record, offset)` does, so they always equal the log up to
`next_offset`. Only heartbeat sessions are not in the log. The tables may be ahead of the committed image; a node that
becomes the active controller starts from its committed image (`Controller.load`). Driven by
`runtime/controller/term.py`.

Requests are the generated dataclasses; a top-level error of a request is raised as ApiError.
Source: KIP-500, KIP-631 and those named in the parts.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decided, Decision, Steps
from kafkapy.metadata.acls import AclControl
from kafkapy.metadata.brokers import BrokerControl, BrokerControlState
from kafkapy.metadata.configs import ConfigControl, ConfigRules
from kafkapy.metadata.features import FeatureControl
from kafkapy.metadata.image import EMPTY_IMAGE, RESOURCE_BROKER, RESOURCE_TOPIC, ConfigResource, MetadataImage
from kafkapy.metadata.limits import MAX_RECORDS_PER_OPERATION
from kafkapy.metadata.partitions import PartitionControl, RecordSteps
from kafkapy.metadata.producer_ids import ProducerIdControl
from kafkapy.metadata.requested_elections import RequestedElections
from kafkapy.metadata.topics import TopicControl
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from kafkapy.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from kafkapy.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from kafkapy.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from kafkapy.seams import Random
from kafkapy.types import INT32_MAX

if TYPE_CHECKING:
    from kafkapy.metadata.client_quotas import ClientQuotaControl
    from kafkapy.metadata.delegation_tokens import DelegationTokenControl, TokenRules
    from kafkapy.metadata.feature_updates import FeatureUpdateControl
    from kafkapy.metadata.reassignments import ReassignmentControl
    from kafkapy.metadata.scram import ScramControl
    from kafkapy.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
    from kafkapy.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse


class ControllerDefaults(NamedTuple):
    """broker.session.timeout.ms; of topics created without: num.partitions, default.replication.factor.

    token_rules: delegation.token.*, None if no secret key is configured.
    """

    session_timeout_ms: int = 9000
    partition_count: int = 1
    replication_factor: int = 1
    token_rules: "TokenRules | None" = None


APACHE_DEFAULTS: Final = ControllerDefaults()


class Controller:
    """All tables of the controller. Created for each term, from the image committed when the term began."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        rules: ConfigRules,
        random: Random,
        defaults: ControllerDefaults = APACHE_DEFAULTS,
        quorum_node_ids: Iterable[int] = (),
    ) -> None:
        self.next_offset = 0
        """The offset of the next record to be appended."""
        self.features = FeatureControl()
        self.configs = ConfigControl(rules, self.features, node_id)
        self.brokers = BrokerControl(self.features, cluster_id, defaults.session_timeout_ms)
        self.topics = TopicControl(
            self.features,
            self.brokers,
            self.configs,
            random,
            default_partition_count=defaults.partition_count,
            default_replication_factor=defaults.replication_factor,
        )
        self.partitions = PartitionControl(self.features, self.brokers, self.configs, self.topics)
        self.elections = RequestedElections(self.brokers, self.topics, self.partitions)
        self.producer_ids = ProducerIdControl(self.brokers)
        self.acls = AclControl(self.features, random)
        self._scram: ScramControl | None = None
        self._loaded_credentials = EMPTY_IMAGE.scram
        self._client_quotas: ClientQuotaControl | None = None
        self._loaded_quotas = EMPTY_IMAGE.client_quotas
        self._random = random
        self._token_rules = defaults.token_rules
        self._tokens: DelegationTokenControl | None = None
        self._loaded_tokens = EMPTY_IMAGE.delegation_tokens
        self._node_id = node_id
        self._quorum_node_ids = frozenset((node_id, *quorum_node_ids))
        self._may_lack_leaders = True
        """Whether a broker may have been fenced or unfenced in part: by the controller before, or a failed decision."""
        self.configs.check_exists = self._check_resource_exists

    def load(self, image: MetadataImage, *, next_offset: int, now_ms: int) -> None:
        """Fill the tables from a committed image. `next_offset` is the log end offset, `now_ms` monotonic."""
        for _ in self.load_topics(image):
            pass
        self.load_rest(image, next_offset=next_offset, now_ms=now_ms)

    def load_topics(self, image: MetadataImage) -> Iterator[None]:
        """Do the long part of `load`, in steps; call `load_rest` after it."""
        yield from self.topics.load(image)

    def load_rest(self, image: MetadataImage, *, next_offset: int, now_ms: int) -> None:
        """Do the rest of `load`."""
        self.next_offset = next_offset
        self.features.load(image)
        self.configs.load(image)
        self.brokers.load(image, now_ms)
        self.producer_ids.load(image)
        self.acls.load(image)
        self._scram, self._loaded_credentials = None, image.scram
        self._client_quotas, self._loaded_quotas = None, image.client_quotas
        self._tokens, self._loaded_tokens = None, image.delegation_tokens

    def skip_to(self, next_offset: int) -> None:
        """Advance next_offset past control records of the quorum (such as a voter change), which are not replayed."""
        assert next_offset >= self.next_offset, f"the log ends at {next_offset}, before {self.next_offset}"
        self.next_offset = next_offset

    @cached_property
    def reassignments(self) -> "ReassignmentControl":
        from kafkapy.metadata.reassignments import ReassignmentControl

        return ReassignmentControl(self.configs, self.topics, self.partitions)

    @cached_property
    def feature_updates(self) -> "FeatureUpdateControl":
        from kafkapy.metadata.feature_updates import FeatureUpdateControl

        return FeatureUpdateControl(
            self.features,
            self.brokers,
            self.configs,
            node_id=self._node_id,
            quorum_node_ids=self._quorum_node_ids - {self._node_id},
        )

    @property
    def scram(self) -> "ScramControl":
        """The table of SCRAM credentials, created on first use: most clusters have none."""
        if self._scram is None:
            from kafkapy.metadata.scram import ScramControl

            self._scram = ScramControl(self.features, self._loaded_credentials)
        return self._scram

    @property
    def client_quotas(self) -> "ClientQuotaControl":
        """The table of client quotas, created on first use: most clusters have none."""
        if self._client_quotas is None:
            from kafkapy.metadata.client_quotas import ClientQuotaControl

            self._client_quotas = ClientQuotaControl(self._loaded_quotas)
        return self._client_quotas

    @property
    def tokens(self) -> "DelegationTokenControl":
        """The table of delegation tokens, created on first use."""
        if self._tokens is None:
            from kafkapy.metadata.delegation_tokens import DelegationTokenControl

            self._tokens = DelegationTokenControl(self.features, self._random, self._token_rules, self._loaded_tokens)
        return self._tokens

    # -- decisions beyond the parts' own --------------------------------------------------------------------------

    def decide_register_broker(
        self, request: BrokerRegistrationRequest, now_ms: int, *, is_local: bool = False
    ) -> Steps[Any, BrokerRegistrationResponse]:
        """Register a broker; a new incarnation first loses the leaderships and ISR memberships of the previous one.

        Deviation: Apache Kafka's broker waits for the session of its previous incarnation to expire, nine seconds after
        a stop or a kill -9. Here one that has a directory of that incarnation does not wait if it runs in the
        controller's process (`is_local`), because this process has locked the directory. Nor does one that names
        that incarnation's epoch as the one of its clean shutdown (KIP-966): only its end has written that. In both
        cases the incarnation is dead.
        """
        record = self.brokers.registration_record(
            request, next_offset=self.next_offset, now_ms=now_ms, is_local=is_local
        )
        existing = self.brokers.brokers.get(request.broker_id)
        if self.brokers.is_new_incarnation(request):
            is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
            yield from self.partitions.restart(request.broker_id, is_clean=is_clean)
        return Decision(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), [record])

    def decide_heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Decided[Any, BrokerHeartbeatResponse]:
        """Decide a broker's next state; its session is renewed at once. Raises ApiError STALE_BROKER_EPOCH.

        Most heartbeats change nothing: they are decided at once, without records.
        """
        broker_id = request.broker_id
        self.brokers.check_epoch(broker_id, request.broker_epoch)
        self.brokers.renew_session(broker_id, now_ms)
        state, next_state = self._next_state(request)
        directories = (request.offline_log_dirs, request.cordoned_log_dirs)
        has_directories = self.features.has_directory_assignment
        if next_state is state and not (
            has_directories and self.partitions.has_new_directories(broker_id, *directories)
        ):
            return Decision(self._heartbeat_response(request, next_state))
        return self._change_broker(request)

    def _change_broker(self, request: BrokerHeartbeatRequest) -> Steps[Any, BrokerHeartbeatResponse]:
        broker_id = request.broker_id
        self.brokers.check_epoch(broker_id, request.broker_epoch)
        state, next_state = self._next_state(request)
        is_unfenced = next_state is not state and next_state is BrokerControlState.UNFENCED
        if next_state is not state and not is_unfenced:
            yield from self._transition(broker_id, next_state)
        if self.features.has_directory_assignment:
            offline, cordoned = request.offline_log_dirs, request.cordoned_log_dirs
            yield from self.partitions.change_directories(broker_id, offline, cordoned)
        records = (yield from self.partitions.unfence(broker_id)) if is_unfenced else []
        fits_batch = len(records) <= MAX_RECORDS_PER_OPERATION
        return Decision(self._heartbeat_response(request, next_state), records, is_atomic=fits_batch)

    def _next_state(self, request: BrokerHeartbeatRequest) -> tuple[BrokerControlState, BrokerControlState]:
        return self.brokers.next_state(request, lambda: self.partitions.has_leaderships(request.broker_id))

    def _heartbeat_response(
        self, request: BrokerHeartbeatRequest, next_state: BrokerControlState
    ) -> BrokerHeartbeatResponse:
        self.brokers.record_heartbeat(request, next_state, last_offset=self.next_offset - 1)
        return BrokerHeartbeatResponse(
            is_caught_up=self.brokers.is_caught_up(request),
            is_fenced=next_state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=next_state is BrokerControlState.SHUTDOWN_NOW,
        )

    def decide_fence_expired(self, now_ms: int) -> Steps[Any, list[int]]:
        """Fence one of the brokers whose session has expired; the response has the ids of all of them.

        Fencing takes several batches. If the controller stopped between them, the broker may be back before the next
        one fences it: then nothing else would elect it for the partitions that it was the last to lead. So each
        controller looks once for such partitions.
        """
        expired = self.brokers.expired_brokers(now_ms)
        if expired:
            self._may_lack_leaders = True
            yield from self.partitions.fence(expired[0])
        elif self._may_lack_leaders:
            yield from self.partitions.elect_missing_leaders()
            self._may_lack_leaders = False
        return Decision(expired)

    def decide_unregister_broker(self, broker_id: int) -> Steps[Any, None]:
        """Unregister a broker. Raises ApiError BROKER_ID_NOT_REGISTERED."""
        if broker_id not in self.brokers.brokers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        return (yield from self.partitions.unregister(broker_id))

    def decide_register_controller(
        self, request: ControllerRegistrationRequest
    ) -> Decision[Any, ControllerRegistrationResponse]:
        return Decision(ControllerRegistrationResponse(), [self.brokers.controller_record(request)], is_atomic=True)

    def decide_unregister_controller(self, controller_id: int) -> Decision[Any, None]:
        """Unregister a controller other than this one. Raises ApiError."""
        if controller_id == self._node_id:
            message = "Controller cannot unregister itself while it is active."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        return Decision(None, [self.brokers.controller_removal(controller_id)], is_atomic=True)

    def decide_allocate_producer_ids(
        self, request: "AllocateProducerIdsRequest"
    ) -> "Decision[Any, AllocateProducerIdsResponse]":
        from kafkapy.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

        decision = self.producer_ids.decide_allocate(request.broker_id, request.broker_epoch)
        block = decision.response
        response = AllocateProducerIdsResponse(producer_id_start=block.first_id, producer_id_len=block.size)
        return Decision(response, decision.records)

    def decide_no_op(self) -> Decision[Any, None]:
        """Write a NoOpRecord: the high watermark advances, which shows that the controller is alive."""
        from kafkapy.protocol.messages.no_op_record import NoOpRecord

        return Decision(None, [] if self.features.is_empty else [NoOpRecord()])

    def _transition(self, broker_id: int, next_state: BrokerControlState) -> RecordSteps:
        if next_state is BrokerControlState.CONTROLLED_SHUTDOWN:
            return self.partitions.begin_controlled_shutdown(broker_id)
        return self.partitions.fence(broker_id)

    def _check_resource_exists(self, resource: ConfigResource) -> None:
        if resource.resource_type == RESOURCE_TOPIC and resource.name not in self.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
        if resource.resource_type != RESOURCE_BROKER or resource.name == "":
            return
        if not resource.name.isdecimal() or len(resource.name) > len(str(INT32_MAX)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {resource.name}")
        node_id = int(resource.name)
        if node_id not in {*self.brokers.brokers, *self.brokers.controllers, *self._quorum_node_ids}:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: Any, offset: int) -> None:
        """Apply `record` at `offset` to the tables. Raises AssertionError if it is inconsistent with them."""
        replay = _REPLAY.get(type(record).__name__)
        assert replay is not None, f"{type(record).__name__} is no metadata record"
        assert offset >= self.next_offset, f"the record at {offset} is replayed after that at {self.next_offset - 1}"
        replay(self, record, offset)
        self.next_offset = offset + 1


def _nothing(controller: Controller, record: Any, offset: int) -> None:
    """Ignore records for which the controller has no table."""


_REPLAY: Final[dict[str, Callable[[Controller, Any, int], None]]] = {
    "RegisterBrokerRecord": lambda controller, record, offset: controller.brokers.replay_registration(record, offset),
    "UnregisterBrokerRecord": lambda controller, record, _: controller.brokers.replay_unregistration(record),
    "TopicRecord": lambda controller, record, _: controller.topics.replay_topic(record),
    "PartitionRecord": lambda controller, record, _: controller.topics.replay_partition(record),
    "ConfigRecord": lambda controller, record, _: controller.configs.replay(record),
    "PartitionChangeRecord": lambda controller, record, _: controller.topics.replay_partition_change(record),
    "FenceBrokerRecord": lambda controller, record, _: controller.brokers.replay_fence(record),
    "UnfenceBrokerRecord": lambda controller, record, _: controller.brokers.replay_unfence(record),
    "RemoveTopicRecord": lambda controller, record, _: controller.topics.replay_remove(record),
    "DelegationTokenRecord": lambda controller, record, _: controller.tokens.replay(record),
    "UserScramCredentialRecord": lambda controller, record, _: controller.scram.replay(record),
    "FeatureLevelRecord": lambda controller, record, _: controller.features.replay(record),
    "ClientQuotaRecord": lambda controller, record, _: controller.client_quotas.replay(record),
    "ProducerIdsRecord": lambda controller, record, _: controller.producer_ids.replay(record),
    "BrokerRegistrationChangeRecord": lambda controller, record, _: controller.brokers.replay_change(record),
    "AccessControlEntryRecord": lambda controller, record, _: controller.acls.replay(record),
    "RemoveAccessControlEntryRecord": lambda controller, record, _: controller.acls.replay_remove(record),
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _nothing,
    "RemoveUserScramCredentialRecord": lambda controller, record, _: controller.scram.replay_remove(record),
    "BeginTransactionRecord": _nothing,
    "EndTransactionRecord": _nothing,
    "AbortTransactionRecord": _nothing,
    "RemoveDelegationTokenRecord": lambda controller, record, _: controller.tokens.replay_remove(record),
    "RegisterControllerRecord": lambda controller, record, _: controller.brokers.replay_controller(record),
    "ClearElrRecord": lambda controller, record, _: controller.topics.replay_clear_elr(record),
    "UnregisterControllerRecord": lambda controller, record, _: controller.brokers.replay_controller_removal(record),
}
