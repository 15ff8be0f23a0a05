"""Dynamic configs: incremental and whole changes, lists, what ELR forbids, what does not exist."""

import time

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType, changed_list
from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, ConfigResource
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.support.controllers import Cluster, end_of

ORDERS = ConfigResource(RESOURCE_TOPIC, "orders")
CLUSTER = ConfigResource(RESOURCE_BROKER, "")
BROKER_1 = ConfigResource(RESOURCE_BROKER, "1")
SET, DELETE, APPEND, SUBTRACT = ConfigOperationType
THROTTLED = "leader.replication.throttled.replicas"


def cluster_with_orders(features: dict[str, int] | None = None) -> Cluster:
    cluster = Cluster(broker_count=1, features=features)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
    cluster.commit(cluster.controller.topics.decide_create(request))
    return cluster


def alter(cluster: Cluster, resource: ConfigResource, *operations: tuple[str, ConfigOperationType, str | None]) -> int:
    changes = {resource: [ConfigOperation(*operation) for operation in operations]}
    error = cluster.commit(cluster.controller.configs.decide_incremental_alter(changes))[resource]
    return 0 if error is None else int(error.code)


def test_set_and_delete_reach_the_image() -> None:
    cluster = cluster_with_orders()

    assert alter(cluster, ORDERS, ("retention.ms", SET, "5"), ("cleanup.policy", SET, "compact")) == 0
    assert alter(cluster, ORDERS, ("cleanup.policy", DELETE, None)) == 0

    assert cluster.image.configs.of(*ORDERS) == {"retention.ms": "5"}


def test_value_that_is_there_already_writes_nothing() -> None:
    cluster = cluster_with_orders()
    alter(cluster, ORDERS, ("retention.ms", SET, "5"))
    end = cluster.controller.next_offset

    alter(cluster, ORDERS, ("retention.ms", SET, "5"))

    assert cluster.controller.next_offset == end


def test_lists_are_appended_to_and_subtracted_from_starting_at_the_default() -> None:
    cluster = cluster_with_orders()

    alter(cluster, ORDERS, ("cleanup.policy", APPEND, "compact,delete"))
    appended = cluster.image.configs.of(*ORDERS)["cleanup.policy"]
    alter(cluster, ORDERS, ("cleanup.policy", SUBTRACT, "delete"))

    assert appended == "delete,compact"
    assert cluster.image.configs.of(*ORDERS)["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("operation", "changed", "expected"),
    [
        (APPEND, "3:1,1:1,3:1", "1:1,2:1,1:1,3:1"),
        (SUBTRACT, "1:1,4:1", "2:1,1:1"),
        (SUBTRACT, "1:1,1:1,1:1", "2:1"),
        (SUBTRACT, "2:1,1:1,1:1", ""),
    ],
)
def test_each_element_of_a_change_counts_once(operation: ConfigOperationType, changed: str, expected: str) -> None:
    assert changed_list("1:1,2:1,1:1", ConfigOperation(THROTTLED, operation, changed)) == expected


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_change_of_a_long_list_costs_by_its_length(operation: ConfigOperationType) -> None:
    """8,191 by 8,191 elements, the longest that a request has, took 0.7 s when each was looked for in the list."""
    current, changed = (",".join([element] * 8191) for element in ("1:1", "2:2"))
    began_s = time.process_time()
    changed_list(current, ConfigOperation(THROTTLED, operation, changed))
    assert time.process_time() - began_s < 0.1


def test_append_to_what_is_no_list_is_refused() -> None:
    assert alter(cluster_with_orders(), ORDERS, ("retention.ms", APPEND, "5")) == ErrorCode.INVALID_CONFIG


def test_one_bad_key_spoils_its_resource_only() -> None:
    cluster = cluster_with_orders()
    changes = {
        ORDERS: [ConfigOperation("retention.ms", SET, "5"), ConfigOperation("nonsense", SET, "1")],
        CLUSTER: [ConfigOperation("retention.ms", SET, "7")],
    }

    results = cluster.commit(cluster.controller.configs.decide_incremental_alter(changes))

    assert results[ORDERS].code == ErrorCode.INVALID_CONFIG
    assert results[CLUSTER] is None
    assert cluster.image.configs.of(*ORDERS) == {}
    assert cluster.image.configs.of(*CLUSTER)["retention.ms"] == "7"


def test_legacy_alter_replaces_all_that_was_set() -> None:
    cluster = cluster_with_orders()
    alter(cluster, ORDERS, ("retention.ms", SET, "5"), ("cleanup.policy", SET, "compact"))

    decision = cluster.controller.configs.decide_legacy_alter({ORDERS: {"retention.ms": "6"}})
    cluster.commit(decision)

    assert cluster.image.configs.of(*ORDERS) == {"retention.ms": "6"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (ConfigResource(RESOURCE_TOPIC, "nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(RESOURCE_BROKER, "7"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(RESOURCE_BROKER, "9" * 5000), ErrorCode.INVALID_REQUEST),
        (ConfigResource(RESOURCE_BROKER, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_do_not_exist_are_refused(resource: ConfigResource, code: ErrorCode) -> None:
    assert alter(cluster_with_orders(), resource, ("retention.ms", SET, "5")) == code


def test_validate_only_writes_nothing() -> None:
    cluster = cluster_with_orders()

    changes = {ORDERS: [ConfigOperation("retention.ms", SET, "5")]}
    decision = end_of(cluster.controller.configs.decide_incremental_alter(changes, validate_only=True))

    assert decision.records == []
    assert decision.response == {ORDERS: None}


def test_elr_keeps_min_insync_replicas_cluster_wide() -> None:
    cluster = cluster_with_orders()
    alter(cluster, CLUSTER, ("min.insync.replicas", SET, "2"))

    assert alter(cluster, BROKER_1, ("min.insync.replicas", SET, "2")) == ErrorCode.INVALID_CONFIG
    assert alter(cluster, CLUSTER, ("min.insync.replicas", DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert type(cluster.log[-1]).__name__ == "ClearElrRecord"


def test_without_elr_a_broker_may_have_its_own_min_insync_replicas() -> None:
    cluster = cluster_with_orders({"eligible.leader.replicas.version": 0})

    assert alter(cluster, BROKER_1, ("min.insync.replicas", SET, "2")) == 0


def test_value_longer_than_a_record_may_hold_is_refused() -> None:
    assert alter(cluster_with_orders(), ORDERS, ("retention.ms", SET, "9" * 32768)) == ErrorCode.INVALID_CONFIG


def test_effective_value_is_the_topics_then_the_clusters() -> None:
    cluster = cluster_with_orders()
    alter(cluster, CLUSTER, ("retention.ms", SET, "7"))
    inherited = cluster.controller.configs.topic_config("orders", "retention.ms")
    alter(cluster, ORDERS, ("retention.ms", SET, "5"))

    assert inherited == "7"
    assert cluster.controller.configs.topic_config("orders", "retention.ms") == "5"


def test_new_topic_with_a_bad_config_raises() -> None:
    with pytest.raises(ApiError):
        cluster_with_orders().controller.configs.records_for_new_topic("n", {"nonsense": "1"})


CORDONS = "cordoned.log.dirs"
NODE = ConfigResource(4, "1")


@pytest.mark.parametrize(("level", "code"), [(29, ErrorCode.INVALID_CONFIG), (30, 0)])
def test_log_directories_are_cordoned_from_4_3_iv0_on(level: int, code: int) -> None:
    cluster = cluster_with_orders({"metadata.version": level})

    assert alter(cluster, NODE, (CORDONS, SET, "/a")) == code
    assert alter(cluster, NODE, (CORDONS, DELETE, None)) == code


@pytest.mark.parametrize(
    ("value", "code"), [("/a", 0), ("/b, /a", 0), ("", 0), (None, 0), ("/c", ErrorCode.INVALID_CONFIG)]
)
def test_without_the_broker_only_fewer_directories_are_cordoned(value: str | None, code: int) -> None:
    """A request to the controllers' listener: the broker, which knows its directories, may be down."""
    cluster = cluster_with_orders()
    assert alter(cluster, NODE, (CORDONS, SET, "/a,/b")) == 0

    operation = ConfigOperation(CORDONS, DELETE if value is None else SET, value)
    decided = cluster.controller.configs.decide_incremental_alter({NODE: [operation]}, is_direct=True)
    error = cluster.commit(decided)[NODE]

    assert (0 if error is None else error.code) == code
