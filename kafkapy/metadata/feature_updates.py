"""Changing feature levels: the controller's decision on UpdateFeatures, all features of a request or none.

A level must be in the range of every registered broker and controller. metadata.version can only be lowered over levels
that changed no records. kraft.version is in the Raft log: the quorum raises it, the decision only checks it.
Source: KIP-584, KIP-778, KIP-853, KIP-1022.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.configs import ConfigControl
from kafkapy.metadata.features import (
    KNOWN_FEATURES,
    MV_3_3_IV3,
    MV_3_7_IV0,
    MV_4_0_IV1,
    WORKING_FEATURES,
    FeatureControl,
)
from kafkapy.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION
from kafkapy.metadata.registrations import VersionRange
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord

if TYPE_CHECKING:
    from kafkapy.protocol.messages.update_features_request import UpdateFeaturesRequest

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
UPGRADE_TYPES: Final = frozenset((UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE))
DISABLED: Final = VersionRange(0, 0)
"""The range of a feature that a node does not list."""
LEVELS_WITH_NEW_RECORDS: Final = frozenset((7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33))
"""The levels of metadata.version that introduced records or fields: a downgrade below one could lose metadata."""
DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): (METADATA_VERSION, MV_4_0_IV1),
}
"""(feature, level) -> the feature and level that it requires."""


class FeatureUpdate(NamedTuple):
    """The requested level of one feature."""

    name: str
    level: int
    upgrade_type: int


class FeatureUpdateControl:
    """Decides changes of feature levels, using the tables of features, nodes and configs."""

    def __init__(
        self,
        features: FeatureControl,
        brokers: BrokerControl,
        configs: ConfigControl,
        *,
        node_id: int,
        quorum_node_ids: Iterable[int],
    ) -> None:
        """`quorum_node_ids`: the controllers of controller.quorum.voters, which must all be registered."""
        self._features = features
        self._brokers = brokers
        self._configs = configs
        self._node_id = node_id
        self._quorum_node_ids = frozenset(quorum_node_ids)

    def decide_update(
        self, request: "UpdateFeaturesRequest", *, kraft_version: int, kraft_refusal: ApiError | None = None
    ) -> Decision[Any, ApiError | None]:
        """Decide all updates of a request; the response is the error of the whole request, or None.

        kraft_version: the Raft log's level, already raised by the caller if the request asks for it.
        kraft_refusal: why the quorum cannot raise it, None if it can.
        """
        updates = {
            each.feature: FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
            for each in request.feature_updates
        }
        proposed = {**self._features.levels, **{each.name: each.level for each in updates.values()}}
        records: list[Any] = []
        try:
            for update in updates.values():
                if update.name == KRAFT_VERSION and update.level > kraft_version and kraft_refusal is not None:
                    # A level that is out of range is the first of the two errors.
                    self._check(update, kraft_version)
                    raise kraft_refusal
                records += self._records_of(update, proposed, kraft_version)
        except ApiError as error:
            return Decision(error, [])
        if request.validate_only:
            return Decision(None, [])
        if proposed.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0 and ELIGIBLE_LEADER_REPLICAS_VERSION in updates:
            records = [*self._configs.elr_safety_records(), *records]
        return Decision(None, records, is_atomic=True)

    def _records_of(self, update: FeatureUpdate, proposed: Mapping[str, int], kraft_version: int) -> list[Any]:
        """Return the records of one update. Raises ApiError INVALID_UPDATE_VERSION."""
        from kafkapy.protocol.messages.no_op_record import NoOpRecord

        current = kraft_version if update.name == KRAFT_VERSION else self._features.levels.get(update.name, 0)
        self._check(update, current)
        reason = None
        if update.name == METADATA_VERSION:
            _check_metadata_downgrade(update, current)
        elif update.name == KRAFT_VERSION:
            if update.upgrade_type == UPGRADE:
                return [NoOpRecord()]
            if update.level != current:
                reason = "Can't downgrade the version of this feature."
            else:
                return []
        else:
            reason = _missing_dependency(update, proposed)
        if reason is not None:
            raise _invalid(update, reason)
        known = KNOWN_FEATURES.get(update.name, DISABLED)
        assert known.min_version <= update.level <= known.max_version, f"{update} could not be replayed"
        return [FeatureLevelRecord(name=update.name, feature_level=update.level)]

    def _check(self, update: FeatureUpdate, current: int) -> None:
        """Raise ApiError INVALID_UPDATE_VERSION if an update fails the checks common to all features."""
        reason = self._refusal(update, current)
        if reason is not None:
            raise _invalid(update, reason)

    def _refusal(self, update: FeatureUpdate, current: int) -> str | None:
        """Return why an update fails the checks common to all features, None if it passes."""
        if update.upgrade_type not in UPGRADE_TYPES:
            return "The controller does not support the given upgrade type."
        if update.level < 0:
            return "A feature version cannot be less than 0."
        reason = self._unsupported(update.name, update.level)
        if reason is not None:
            return reason
        if update.level < current and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
        if update.level > current and update.upgrade_type != UPGRADE:
            return "Can't downgrade to a newer version."
        return None

    def _unsupported(self, name: str, level: int) -> str | None:
        """Return a message that names a node which does not support a level, None if all support it."""
        nodes = [(f"Local controller {self._node_id}", WORKING_FEATURES)]
        nodes += [(f"Broker {broker.id}", broker.features) for broker in self._brokers.brokers.values()]
        knows_controllers = self._features.metadata_version >= MV_3_7_IV0
        others = {id: each for id, each in self._brokers.controllers.items() if id != self._node_id}
        if knows_controllers:
            nodes += [(f"Controller {id}", each.features) for id, each in others.items()]
        for node, ranges in nodes:
            low, high = ranges.get(name, DISABLED)
            if not low <= level <= high:
                return _range_text(node, low, high)
        missing = self._quorum_node_ids - {self._node_id, *others} if knows_controllers else ()
        for node_id in sorted(missing):
            return f"controller {node_id} has not registered, and may not support this feature"
        return None


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _range_text(node: str, low: int, high: int) -> str:
    if high == 0:
        return f"{node} does not support this feature."
    return f"{node} only supports versions {low if low == high else f'{low}-{high}'}"


def _check_metadata_downgrade(update: FeatureUpdate, current: int) -> None:
    """Raise ApiError if metadata.version would be lowered below a level that changed records."""
    if not any(update.level < level <= current for level in LEVELS_WITH_NEW_RECORDS):
        return
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if update.upgrade_type == UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    raise ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}",
    )


def _missing_dependency(update: FeatureUpdate, proposed: Mapping[str, int]) -> str | None:
    """Return a message that names a missing dependency of a level, None without one."""
    name, level = update.name, update.level
    if level >= 1 and proposed.get(METADATA_VERSION, 0) < MV_3_3_IV3:
        return f"{name} could not be set to {level} because it depends on metadata.version={MV_3_3_IV3} (3.3-IV3)"
    needed = DEPENDENCIES.get((name, level))
    if needed is not None and proposed.get(needed[0], 0) < needed[1]:
        return f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}"
    return None
