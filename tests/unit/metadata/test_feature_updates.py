"""UpdateFeatures as the controller decides it: the cases of Apache Kafka's FeatureControlManagerTest."""

from collections.abc import Mapping
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.feature_updates import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_registration_request import Feature
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.no_op_record import NoOpRecord
from kafkapy.protocol.messages.register_controller_record import ControllerFeature, RegisterControllerRecord
from kafkapy.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, Cluster, SimpleRules, registration_request

MV, ELR, TV, GV = "metadata.version", "eligible.leader.replicas.version", "transaction.version", "group.version"
OLD = {MV: 7, ELR: 0, TV: 0, GV: 0, "share.version": 0, "streams.version": 0}


def old_cluster(broker_count: int = 1, **levels: int) -> Cluster:
    """Return a cluster at 3.3-IV3 but for `levels`, by names with underscores."""
    return Cluster(broker_count, {**OLD, **{name.replace("_", "."): level for name, level in levels.items()}})


def decide(
    cluster: Cluster,
    updates: Mapping[str, tuple[int, int]],
    *,
    kraft_version: int = 1,
    validate_only: bool = False,
    kraft_refusal: ApiError | None = None,
) -> Decision[Any, Any]:
    keys = [
        FeatureUpdateKey(name, max_version_level=level, upgrade_type=kind) for name, (level, kind) in updates.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return cluster.controller.feature_updates.decide_update(
        request, kraft_version=kraft_version, kraft_refusal=kraft_refusal
    )


def update(cluster: Cluster, name: str, level: int, kind: int = UPGRADE, **changes: Any) -> str | None:
    """Update a feature; return the error's message, which is INVALID_UPDATE_VERSION's."""
    error = cluster.commit(decide(cluster, {name: (level, kind)}, **changes))
    if error is None:
        return None
    assert error.code == ErrorCode.INVALID_UPDATE_VERSION
    return str(error.message)


def levels(cluster: Cluster) -> Mapping[str, int]:
    assert cluster.controller.features.levels == cluster.image.features.levels
    return cluster.image.features.levels


def test_metadata_version_rises_through_every_level() -> None:
    cluster = old_cluster()

    for level in range(8, 34):
        assert update(cluster, MV, level) is None

    assert levels(cluster) == {MV: 33}


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (TV, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (MV, 34, UPGRADE, "Local controller 1 only supports versions 7-33"),
        (MV, 6, SAFE_DOWNGRADE, "Local controller 1 only supports versions 7-33"),
        ("foo.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("streams.version", 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        (TV, -1, UPGRADE, "A feature version cannot be less than 0."),
        (TV, 1, 0, "The controller does not support the given upgrade type."),
        (TV, 1, 9, "The controller does not support the given upgrade type."),
        (TV, 2, SAFE_DOWNGRADE, "Can't downgrade to a newer version."),
        (TV, 2, UNSAFE_DOWNGRADE, "Can't downgrade to a newer version."),
        (
            TV,
            0,
            UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (ELR, 1, UPGRADE, f"{ELR} could not be set to 1 because it depends on metadata.version level 23"),
    ],
)
def test_levels_that_cannot_be_are_refused(name: str, level: int, kind: int, reason: str) -> None:
    cluster = old_cluster(metadata_version=14, transaction_version=1)

    assert update(cluster, name, level, kind) == f"Invalid update version {level} for feature {name}. {reason}"
    assert levels(cluster) == {MV: 14, TV: 1}


@pytest.mark.parametrize(
    ("current", "target", "is_possible"),
    [
        (33, 32, False),
        (32, 31, False),
        (31, 30, True),
        (30, 29, False),
        (29, 23, True),
        (29, 22, False),
        (22, 17, True),
        (17, 16, False),
        (10, 8, True),
        (14, 14, True),
    ],
)
def test_metadata_version_goes_down_over_levels_without_new_records(
    current: int, target: int, is_possible: bool
) -> None:
    cluster = old_cluster(metadata_version=current)
    prefix = f"Unsupported metadata.version downgrade from {current} to {target}. "

    refused = update(cluster, MV, target, SAFE_DOWNGRADE)
    forced = update(old_cluster(metadata_version=current), MV, target, UNSAFE_DOWNGRADE)

    if is_possible:
        assert (refused, forced, levels(cluster)[MV]) == (None, None, target)
        return
    assert refused == (
        f"{prefix}Refusing to perform the requested downgrade because it might delete metadata information."
    )
    assert forced == f"{prefix}Unsafe metadata downgrade is not supported in this version."


def test_all_updates_of_a_request_are_made_or_none() -> None:
    cluster = old_cluster(metadata_version=24)

    refused = cluster.commit(decide(cluster, {TV: (2, UPGRADE), GV: (7, UPGRADE)}))
    before = dict(levels(cluster))
    made = cluster.commit(decide(cluster, {TV: (2, UPGRADE), GV: (1, UPGRADE)}))

    assert "group.version" in refused.message
    assert (made, before) == (None, {MV: 24})
    assert levels(cluster) == {MV: 24, TV: 2, GV: 1}


def test_a_dependency_may_rise_in_the_same_request() -> None:
    cluster = old_cluster(metadata_version=14)

    assert decide(cluster, {ELR: (1, UPGRADE), MV: (23, UPGRADE)}).response is None


def test_a_dry_run_shows_what_would_be_done() -> None:
    cluster = old_cluster(metadata_version=14)

    assert update(cluster, MV, 20, validate_only=True) is None
    assert "only supports versions" in str(update(cluster, MV, 34, validate_only=True))
    assert levels(cluster) == {MV: 14}


def test_a_feature_that_is_disabled_is_gone() -> None:
    cluster = old_cluster(metadata_version=24, transaction_version=2)

    assert update(cluster, TV, 0, SAFE_DOWNGRADE) is None

    assert levels(cluster) == {MV: 24}


def test_every_registered_broker_has_to_support_it() -> None:
    cluster = old_cluster()
    ranges = {feature.name: (0, feature.max_supported_version) for feature in registration_request(2).features}
    features = [
        Feature(name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in {**ranges, MV: (7, 20)}.items()
        if name != GV
    ]
    cluster.register(2, features=features)

    assert (
        update(cluster, MV, 21) == f"Invalid update version 21 for feature {MV}. Broker 2 only supports versions 7-20"
    )
    assert (
        update(cluster, GV, 1) == f"Invalid update version 1 for feature {GV}. Broker 2 does not support this feature."
    )
    assert update(cluster, MV, 20) is None


def test_every_controller_has_to_be_registered_and_to_support_it() -> None:
    cluster = old_cluster()
    controller = Controller(
        node_id=1, cluster_id=CLUSTER_ID, rules=SimpleRules(), random=SeededRandom(1), quorum_node_ids=(1, 2)
    )
    controller.load(cluster.image, next_offset=cluster.controller.next_offset, now_ms=0)
    cluster.controller = controller

    assert update(cluster, MV, 17) is None  # 3.3 knows of no controllers
    unknown = update(cluster, MV, 18)
    features = [ControllerFeature(MV, min_supported_version=7, max_supported_version=18)]
    cluster.commit(Decision(None, [RegisterControllerRecord(controller_id=2, features=features)]))

    assert unknown == (
        f"Invalid update version 18 for feature {MV}. controller 2 has not registered, and may not support this feature"
    )
    assert update(cluster, MV, 19) == (
        f"Invalid update version 19 for feature {MV}. Controller 2 only supports versions 7-18"
    )
    assert update(cluster, MV, 18) is None


def test_eligible_leader_replicas_need_one_min_insync_replicas() -> None:
    cluster = old_cluster(metadata_version=24)
    own = ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="2")
    cluster.commit(Decision(None, [own]))

    assert update(cluster, ELR, 1) is None

    records = cluster.log[-3:]
    assert [getattr(record, "value", None) for record in records] == ["1", None, None]
    assert [record.resource_name for record in records[:2]] == ["", "1"]
    assert isinstance(records[2], FeatureLevelRecord)


def test_kraft_version_lies_in_the_raft_log() -> None:
    cluster = old_cluster()

    stays = decide(cluster, {"kraft.version": (1, UPGRADE)}, kraft_version=1)
    same = decide(cluster, {"kraft.version": (1, SAFE_DOWNGRADE)}, kraft_version=1)

    assert (stays.response, [type(record) for record in stays.records]) == (None, [NoOpRecord])
    assert (same.response, same.records) == (None, [])
    refusal = ApiError(ErrorCode.INVALID_UPDATE_VERSION, "not all of the voters support it")
    assert update(cluster, "kraft.version", 1, kraft_version=0, kraft_refusal=refusal) == refusal.message
    assert update(cluster, "kraft.version", 1, kraft_version=0) is None
    assert update(cluster, "kraft.version", 0, SAFE_DOWNGRADE) == (
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
    )


def test_a_level_of_kraft_version_in_the_metadata_is_ignored() -> None:
    cluster = old_cluster()

    cluster.commit(Decision(None, [FeatureLevelRecord(name="kraft.version", feature_level=1)]))

    assert levels(cluster) == {MV: 7}
