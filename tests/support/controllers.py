"""Controllers for tests: tables made from an image, with plain config rules and seeded random numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy import machine
from kafkapy.config.rules import EffectiveConfig
from kafkapy.errors import ApiError
from kafkapy.machine import Decided, Decision
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.brokers import registration_features
from kafkapy.metadata.configs import CORDONED_LOG_DIRS
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage, Provenance
from kafkapy.metadata.loader import ImageLoader
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from tests.support.chance import SeededRandom

CLUSTER_ID = "CCCCCCCCCCCCCCCCCCCCCQ"


class SimpleRules:
    """ConfigRules of a few topic keys, enough to see them asked."""

    defaults = {
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
        "retention.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }

    def validate(self, resource: ConfigResource, configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
        for key in configs:
            if key not in self.defaults and key != CORDONED_LOG_DIRS:
                raise ApiError(40, f"Unknown topic config name: {key}")

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default_value(self, resource_type: int, key: str) -> str | None:
        return self.defaults.get(key)

    def effective_topic_configs(
        self, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> Sequence[EffectiveConfig]:
        return [
            EffectiveConfig(key, topic.get(key, value), 1 if key in topic else 5, False, False)
            for key, value in self.defaults.items()
        ]

    def effective_topic_config(
        self, key: str, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> str | None:
        return topic.get(key) or node.get(key) or cluster.get(key) or self.defaults.get(key)


def new_controller(image: MetadataImage = EMPTY_IMAGE, *, seed: int = 1) -> Controller:
    controller = Controller(node_id=1, cluster_id=CLUSTER_ID, rules=SimpleRules(), random=SeededRandom(seed))
    controller.load(image, next_offset=image.provenance.last_offset + 1, now_ms=0)
    return controller


def end_of(decided: Decided[Any, Any], replay: Callable[[list[Any]], None] | None = None) -> Decision[Any, Any]:
    """Return what a decision comes to. Without `replay`, its steps must be without records."""
    if isinstance(decided, Decision):
        return decided
    while True:
        try:
            records = next(decided)
        except StopIteration as end:
            decision: Decision[Any, Any] = end.value
            return decision
        assert replay is not None or not records
        if replay is not None:
            replay(records)


def published_by(loader: ImageLoader) -> tuple[MetadataDelta, MetadataImage] | None:
    """Return what a loader publishes, all its steps taken at once."""
    return machine.end_of(loader.publish())


class Cluster:
    """A controller whose decisions are replayed at once, as if committed; the image follows."""

    def __init__(self, broker_count: int = 0, features: Mapping[str, int] | None = None) -> None:
        self.controller = new_controller()
        self.image = EMPTY_IMAGE
        self.now_ms = 1000
        self.epochs: dict[int, int] = {}
        self.log: list[Any] = []
        levels = {record.name: record for record in default_bootstrap_records()}
        for name, level in (features or {}).items():
            levels[name].feature_level = level
        self.commit(Decision(None, list(levels.values())))
        for broker_id in range(1, broker_count + 1):
            self.start_broker(broker_id)

    def commit(self, decided: Decided[Any, Any]) -> Any:
        """Replay a decision's records into tables and image, return its response."""
        delta = MetadataDelta(self.image)

        def replay(records: list[Any]) -> None:
            for record in records:
                self.controller.replay(record, self.controller.next_offset)
                delta.replay(record)
            self.log += records

        decision = end_of(decided, replay)
        replay(decision.records)
        self.image = delta.apply(Provenance(self.controller.next_offset - 1, 1, 0))
        return decision.response

    def register(self, broker_id: int, *, incarnation: int = 1, rack: str | None = None, **changes: Any) -> int:
        request = registration_request(broker_id, incarnation=incarnation, rack=rack, **changes)
        response = self.commit(self.controller.decide_register_broker(request, self.now_ms))
        self.epochs[broker_id] = response.broker_epoch
        return int(response.broker_epoch)

    def heartbeat(self, broker_id: int, **changes: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.controller.next_offset - 1,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.commit(self.controller.decide_heartbeat(request, self.now_ms))

    def start_broker(self, broker_id: int, **changes: Any) -> None:
        self.register(broker_id, **changes)
        assert not self.heartbeat(broker_id).is_fenced


def directory_id(broker_id: int) -> bytes:
    return bytes(12) + (1000 + broker_id).to_bytes(4)


def registration_request(broker_id: int, *, incarnation: int = 1, rack: str | None = None, **changes: Any) -> Any:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=bytes(8) + incarnation.to_bytes(4) + broker_id.to_bytes(4),
        listeners=[Listener(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in registration_features().items()
        ],
        rack=rack,
        log_dirs=[directory_id(broker_id)],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request
