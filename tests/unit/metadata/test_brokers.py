"""Brokers come, beat, fall silent and go: registration, fencing, elections, controlled shutdown, ELR."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.brokers import BrokerControlState
from kafkapy.metadata.registrations import DIRECTORY_LOST, NO_LEADER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    PartitionData,
    TopicData,
)
from kafkapy.protocol.messages.alter_partition_request import (
    BrokerState as IsrMember,
)
from kafkapy.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
)
from kafkapy.protocol.messages.assign_replicas_to_dirs_request import (
    PartitionData as AssignedPartition,
)
from kafkapy.protocol.messages.assign_replicas_to_dirs_request import (
    TopicData as AssignedTopic,
)
from kafkapy.protocol.messages.broker_registration_request import Feature
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord
from kafkapy.protocol.messages.register_controller_record import RegisterControllerRecord
from tests.support.controllers import Cluster, directory_id, end_of, new_controller, registration_request

NO_ELR = {"eligible.leader.replicas.version": 0}


def with_topic(cluster: Cluster, *replicas: list[int], configs: dict[str, str] | None = None) -> bytes:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in enumerate(replicas)
    ]
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    response = cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=[topic])))
    assert response.topics[0].error_code == 0
    topic_id: bytes = response.topics[0].topic_id
    return topic_id


def partition(cluster: Cluster, index: int = 0) -> Any:
    assert cluster.controller.topics.by_name["t"].partitions == cluster.image.topics.by_name["t"].partitions
    return cluster.image.topics.by_name["t"].partitions[index]


def test_broker_epoch_is_the_offset_of_its_registration() -> None:
    cluster = Cluster()

    epoch = cluster.register(1)

    assert epoch == cluster.controller.next_offset - 1
    assert cluster.image.cluster.brokers[1].fenced


def test_broker_is_unfenced_once_it_has_applied_its_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)

    behind = cluster.heartbeat(1, current_metadata_offset=epoch - 1)
    caught_up = cluster.heartbeat(1, current_metadata_offset=epoch)

    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert not cluster.image.cluster.brokers[1].fenced


def test_another_incarnation_is_refused_while_the_session_lives() -> None:
    cluster = Cluster(broker_count=1)

    with pytest.raises(ApiError) as refusal:
        cluster.register(1, incarnation=2)
    cluster.now_ms += 9001

    assert refusal.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(1, incarnation=2) > 0


def register_in_controller(cluster: Cluster, **changes: Any) -> int:
    """Register the next incarnation of broker 1, which runs in the controller's process."""
    request = registration_request(1, incarnation=2, **changes)
    response = cluster.commit(cluster.controller.decide_register_broker(request, cluster.now_ms, is_local=True))
    return int(response.broker_epoch)


def test_a_broker_in_the_controllers_process_that_holds_a_directory_of_the_last_incarnation_need_not_wait() -> None:
    cluster = Cluster()
    cluster.start_broker(1, log_dirs=[directory_id(1), directory_id(2)])

    assert register_in_controller(cluster, log_dirs=[directory_id(2)]) > cluster.epochs[1]


def test_a_broker_in_the_controllers_process_does_not_supersede_one_with_other_directories() -> None:
    cluster = Cluster(broker_count=1)

    with pytest.raises(ApiError) as refusal:
        register_in_controller(cluster, log_dirs=[directory_id(2)])
    cluster.now_ms += 9001

    assert refusal.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register_in_controller(cluster, log_dirs=[directory_id(2)]) > cluster.epochs[1]


def test_a_broker_whose_last_incarnation_was_shut_down_cleanly_need_not_wait_for_its_session() -> None:
    cluster = Cluster(broker_count=1)
    epoch = cluster.epochs[1]

    with pytest.raises(ApiError, match="DUPLICATE_BROKER_REGISTRATION"):
        cluster.register(1, incarnation=2, previous_broker_epoch=epoch - 1)
    with pytest.raises(ApiError, match="DUPLICATE_BROKER_REGISTRATION"):
        cluster.register(1, incarnation=2, previous_broker_epoch=epoch, log_dirs=[directory_id(2)])

    cluster.start_broker(1, incarnation=2, previous_broker_epoch=epoch)
    assert cluster.epochs[1] > epoch
    with pytest.raises(ApiError, match="DUPLICATE_BROKER_REGISTRATION"):
        cluster.register(1, incarnation=3, previous_broker_epoch=epoch)  # a copy of the directory, started twice


def test_a_registration_of_another_cluster_is_refused_for_good_even_if_the_id_is_taken() -> None:
    cluster = Cluster(broker_count=1)

    with pytest.raises(ApiError) as refusal:
        cluster.register(1, incarnation=2, cluster_id="other")

    assert refusal.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_same_incarnation_keeps_its_epoch_and_stays_unfenced() -> None:
    cluster = Cluster(broker_count=1)
    epoch = cluster.epochs[1]

    assert cluster.register(1) == epoch
    assert not cluster.image.cluster.brokers[1].fenced


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_id(9), directory_id(9)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_id(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {"features": [Feature("transaction.version", min_supported_version=0, max_supported_version=2)]},
            ErrorCode.INVALID_REGISTRATION,
        ),
        (
            {"features": [Feature("transaction.version", min_supported_version=9, max_supported_version=9)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_registration_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster(broker_count=1)

    with pytest.raises(ApiError) as refusal:
        cluster.register(2, **changes)

    assert refusal.value.code == code


def test_heartbeat_of_an_earlier_incarnation_is_stale() -> None:
    cluster = Cluster(broker_count=1)
    cluster.epochs[1] -= 1

    with pytest.raises(ApiError) as refusal:
        cluster.heartbeat(1)

    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_silent_broker_is_fenced_and_its_leaderships_move() -> None:
    cluster = Cluster(broker_count=2, features=NO_ELR)
    with_topic(cluster, [1, 2], [2, 1])
    cluster.now_ms += 8000
    cluster.heartbeat(2)
    cluster.now_ms += 2000

    expired = cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))

    assert expired == [1]
    assert cluster.image.cluster.brokers[1].fenced
    assert [partition(cluster, index).leader for index in (0, 1)] == [2, 2]
    assert [partition(cluster, index).isr for index in (0, 1)] == [(2,), (2,)]
    assert [partition(cluster, index).leader_epoch for index in (0, 1)] == [1, 0]
    assert cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms)) == []


def test_a_new_controller_gives_each_unfenced_broker_a_whole_session() -> None:
    cluster = Cluster(broker_count=2)
    cluster.now_ms += 9001
    cluster.heartbeat(2)
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))

    controller = new_controller(cluster.image)

    assert [controller.brokers.has_valid_session(broker_id, 9000) for broker_id in (1, 2)] == [False, True]
    assert controller.brokers.expired_brokers(9000) == []
    assert controller.brokers.expired_brokers(9001) == [2]


def test_of_several_silent_brokers_one_is_fenced_at_a_time() -> None:
    cluster = Cluster(broker_count=3)
    cluster.now_ms += 9001
    cluster.heartbeat(3)

    assert cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms)) == [1, 2]

    assert [cluster.image.cluster.brokers[each].fenced for each in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize("features", [NO_ELR, {}])
def test_a_new_incarnation_of_a_broker_that_was_not_fenced_yet_leaves_the_isrs(features: dict[str, int]) -> None:
    cluster = Cluster(broker_count=2, features=features)
    with_topic(cluster, [1, 2])
    cluster.now_ms += 9001

    cluster.register(1, incarnation=2)

    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))


def test_unclean_elections_without_a_request_are_limited() -> None:
    cluster = Cluster(broker_count=2, features=NO_ELR)
    with_topic(cluster, [1, 2], [1, 2], configs={"unclean.leader.election.enable": "false"})
    cluster.now_ms += 9001
    cluster.heartbeat(1)
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))  # 2: the ISRs are [1]
    cluster.now_ms += 9001
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))  # 1, the last of them
    cluster.heartbeat(2)
    assert [partition(cluster, each).leader for each in (0, 1)] == [NO_LEADER] * 2
    value = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
    cluster.commit(Decision(None, [value]))

    decide = cluster.controller.partitions.decide_unclean_elections

    assert [cluster.commit(decide(max_elections=1)) for _ in range(3)] == [1, 1, 0]
    assert [partition(cluster, each).leader for each in (0, 1)] == [2, 2]


def test_last_replica_stays_in_the_isr_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster(broker_count=1, features=NO_ELR)
    with_topic(cluster, [1])
    cluster.now_ms += 9001
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))
    fenced = partition(cluster)

    cluster.heartbeat(1)

    assert (fenced.leader, fenced.isr, fenced.leader_epoch) == (NO_LEADER, (1,), 1)
    back = partition(cluster)
    assert (back.leader, back.isr, back.leader_epoch, back.leader_recovery_state) == (1, (1,), 2, 0)


def test_last_replica_becomes_eligible_with_elr_and_leads_from_there() -> None:
    cluster = Cluster(broker_count=1)
    with_topic(cluster, [1])
    cluster.now_ms += 9001
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))
    fenced = partition(cluster)

    cluster.heartbeat(1)

    assert (fenced.leader, fenced.isr, fenced.elr, fenced.last_known_elr) == (NO_LEADER, (), (1,), (1,))
    back = partition(cluster)
    assert (back.leader, back.isr, back.elr, back.last_known_elr, back.leader_epoch) == (1, (1,), (), (), 2)


def test_new_incarnation_after_an_unclean_stop_is_no_longer_eligible() -> None:
    cluster = Cluster(broker_count=2)
    with_topic(cluster, [1, 2], configs={"min.insync.replicas": "2"})
    cluster.now_ms += 9001
    cluster.heartbeat(2)
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))
    assert (partition(cluster).isr, partition(cluster).elr) == ((2,), (1,))

    cluster.register(1, incarnation=2)

    assert (partition(cluster).isr, partition(cluster).elr) == ((2,), ())


def test_new_incarnation_after_a_clean_stop_stays_eligible() -> None:
    cluster = Cluster(broker_count=2)
    with_topic(cluster, [1, 2], configs={"min.insync.replicas": "2"})
    cluster.now_ms += 9001
    cluster.heartbeat(2)
    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))

    cluster.register(1, incarnation=2, previous_broker_epoch=cluster.epochs[1])

    assert partition(cluster).elr == (1,)


def test_controlled_shutdown_moves_leaderships_then_lets_go() -> None:
    cluster = Cluster(broker_count=2)
    with_topic(cluster, [1, 2])

    first = cluster.heartbeat(1, want_shut_down=True)
    moved = partition(cluster)
    cluster.heartbeat(2)
    second = cluster.heartbeat(1, want_shut_down=True)

    assert (first.should_shut_down, second.should_shut_down) == (False, True)
    assert (moved.leader, moved.isr) == (2, (2,))
    broker = cluster.image.cluster.brokers[1]
    assert (broker.in_controlled_shutdown, broker.fenced) == (True, True)


def test_controlled_shutdown_waits_until_the_others_have_read_of_it() -> None:
    cluster = Cluster(broker_count=2)
    with_topic(cluster, [1, 2])
    offset_before = cluster.controller.next_offset - 1
    cluster.heartbeat(1, want_shut_down=True)

    cluster.heartbeat(2, current_metadata_offset=offset_before)
    waiting = cluster.heartbeat(1, want_shut_down=True)

    assert not waiting.should_shut_down
    assert cluster.controller.brokers.state(1) is BrokerControlState.CONTROLLED_SHUTDOWN


def test_broker_without_leaderships_goes_at_once() -> None:
    cluster = Cluster(broker_count=1)

    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_only_node_of_a_cluster_can_shut_down_and_lead_again() -> None:
    cluster = Cluster(broker_count=1)
    with_topic(cluster, [1])

    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.now_ms += 10_000
    cluster.start_broker(1, incarnation=2, previous_broker_epoch=cluster.epochs[1])

    assert (partition(cluster).leader, partition(cluster).isr) == (1, (1,))


def test_unclean_election_happens_where_the_topic_allows_it() -> None:
    cluster = Cluster(broker_count=2, features=NO_ELR)
    with_topic(cluster, [1, 2], configs={"unclean.leader.election.enable": "true"})
    shrink(cluster, [1])
    cluster.now_ms += 9001
    cluster.heartbeat(2)

    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))

    elected = partition(cluster)
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (2, (2,), 1)


def test_lost_directory_costs_its_leaderships_and_is_noted() -> None:
    cluster = Cluster()
    for broker_id in (1, 2):
        cluster.register(broker_id, log_dirs=[directory_id(broker_id), directory_id(10 + broker_id)])
        cluster.heartbeat(broker_id)
    topic_id = with_topic(cluster, [1, 2])
    assign(cluster, 1, topic_id, directory_id(1))

    cluster.heartbeat(1, offline_log_dirs=[directory_id(1)])

    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))
    assert cluster.image.cluster.brokers[1].directories == (directory_id(11),)


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_replica_in_a_lost_directory_is_not_elected_though_its_broker_is_up(is_unclean: bool) -> None:
    cluster = Cluster(features=NO_ELR)
    cluster.register(1, log_dirs=[directory_id(1), directory_id(11)])
    cluster.heartbeat(1)
    topic_id = with_topic(cluster, [1], configs={"unclean.leader.election.enable": str(is_unclean).lower()})
    assign(cluster, 1, topic_id, directory_id(1))
    cluster.heartbeat(1, offline_log_dirs=[directory_id(1)])
    assert (partition(cluster).leader, partition(cluster).isr) == (NO_LEADER, (1,))

    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(1)
    cluster.commit(cluster.controller.partitions.decide_unclean_elections())

    assert cluster.image.cluster.brokers[1].is_active
    assert partition(cluster).leader == NO_LEADER


def test_cordoned_directories_take_no_new_replicas() -> None:
    cluster = Cluster(broker_count=2)
    cluster.heartbeat(1, cordoned_log_dirs=[directory_id(1)])

    assert [broker.id for broker in cluster.controller.brokers.usable_brokers()] == [2]


def test_registration_record_carries_what_kafkas_does() -> None:
    cluster = Cluster()
    cluster.register(1, rack="r1")

    record = cluster.log[-1]

    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced, record.rack) == (cluster.epochs[1], True, "r1")
    names = {feature.name for feature in record.features}
    assert names >= {"metadata.version", "kraft.version", "group.version", "transaction.version", "streams.version"}
    assert record.log_dirs == registration_request(1).log_dirs


def alter(cluster: Cluster, broker_id: int, isr: list[int], **changes: int) -> Any:
    current = partition(cluster)
    requested = PartitionData(
        partition_index=0,
        leader_epoch=changes.get("leader_epoch", current.leader_epoch),
        partition_epoch=changes.get("partition_epoch", current.partition_epoch),
        new_isr_with_epochs=[
            IsrMember(broker_id=member, broker_epoch=cluster.epochs.get(member, -1)) for member in isr
        ],
    )
    topic_id = cluster.image.topics.by_name["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=cluster.epochs[broker_id],
        topics=[TopicData(topic_id=topic_id, partitions=[requested])],
    )
    return cluster.commit(cluster.controller.partitions.decide_alter_partition(request, 3)).topics[0].partitions[0]


def shrink(cluster: Cluster, isr: list[int]) -> None:
    assert alter(cluster, partition(cluster).leader, isr).error_code == ErrorCode.NONE


def test_leader_may_shrink_and_grow_its_isr() -> None:
    cluster = Cluster(broker_count=2, features=NO_ELR)
    with_topic(cluster, [1, 2])

    shrunk = alter(cluster, 1, [1])
    grown = alter(cluster, 1, [1, 2])

    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ([1], 0, 1)
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2], 0, 2)


@pytest.mark.parametrize(
    ("broker_id", "isr", "changes", "code"),
    [
        (1, [1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (1, [1], {"leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        (1, [1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (2, [2], {}, ErrorCode.INVALID_REQUEST),
        (1, [2], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 7], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 3], {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_isr_change_is_refused(broker_id: int, isr: list[int], changes: dict[str, int], code: ErrorCode) -> None:
    cluster = Cluster(broker_count=3)
    with_topic(cluster, [1, 2, 3])
    cluster.heartbeat(3, want_fence=True)

    assert alter(cluster, broker_id, isr, **changes).error_code == code


def assign(cluster: Cluster, broker_id: int, topic_id: bytes, directory: bytes) -> int:
    topic = AssignedTopic(topic_id=topic_id, partitions=[AssignedPartition(partition_index=0)])
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.epochs[broker_id],
        directories=[DirectoryData(id=directory, topics=[topic])],
    )
    response = cluster.commit(cluster.controller.partitions.decide_assign_replicas(request))
    code: int = response.directories[0].topics[0].partitions[0].error_code
    return code


def test_replica_is_assigned_to_the_directory_that_its_broker_chose() -> None:
    cluster = Cluster()
    cluster.register(1, log_dirs=[directory_id(1), directory_id(11)])
    cluster.heartbeat(1)
    topic_id = with_topic(cluster, [1])
    assert partition(cluster).directories == (bytes(15) + b"\x01",)

    assert assign(cluster, 1, topic_id, directory_id(11)) == ErrorCode.NONE
    assert assign(cluster, 1, bytes(16), directory_id(11)) == ErrorCode.UNKNOWN_TOPIC_ID

    assert partition(cluster).directories == (directory_id(11),)


def test_a_replica_that_its_broker_assigns_to_a_directory_that_is_gone_leaves_the_isr() -> None:
    cluster = Cluster(broker_count=2)
    topic_id = with_topic(cluster, [1, 2])

    assert assign(cluster, 1, topic_id, directory_id(11)) == ErrorCode.NONE

    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))
    assert partition(cluster).directories[0] == directory_id(11)


def test_the_only_replica_leads_once_it_is_assigned_to_an_online_directory_again() -> None:
    """Its directory failed and was assigned DirectoryId.LOST; after a restart its broker assigns the one it has."""
    cluster = Cluster(broker_count=1)
    topic_id = with_topic(cluster, [1])
    online = partition(cluster).directories[0]
    assert assign(cluster, 1, topic_id, DIRECTORY_LOST) == ErrorCode.NONE
    assert partition(cluster).leader == NO_LEADER

    assert assign(cluster, 1, topic_id, online) == ErrorCode.NONE

    assert (partition(cluster).leader, partition(cluster).isr, partition(cluster).directories) == (1, (1,), (online,))


def test_a_request_assigns_a_replica_once() -> None:
    """The first mention elects broker 2; the second would have broker 1 lead, which has left the ISR by the first."""
    cluster = Cluster(broker_count=2, features=NO_ELR)
    topic_id = with_topic(cluster, [1, 2])
    online = partition(cluster).directories[0]
    shrink(cluster, [1])
    assign(cluster, 1, topic_id, DIRECTORY_LOST)
    unclean = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
    cluster.commit(Decision(None, [unclean]))
    assert partition(cluster).leader == NO_LEADER
    topics = [AssignedTopic(topic_id=topic_id, partitions=[AssignedPartition(partition_index=0)])]
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        directories=[DirectoryData(id=each, topics=topics) for each in (directory_id(11), online)],
    )

    response = cluster.commit(cluster.controller.partitions.decide_assign_replicas(request))

    codes = [each.topics[0].partitions[0].error_code for each in response.directories]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))


def test_producer_ids_come_in_blocks_that_never_meet() -> None:
    cluster = Cluster(broker_count=1)
    decide = cluster.controller.producer_ids.decide_allocate

    first = cluster.commit(decide(1, cluster.epochs[1]))
    second = cluster.commit(decide(1, cluster.epochs[1]))

    assert (first.first_id, first.size, second.first_id) == (0, 1000, 1000)
    assert cluster.image.next_producer_id == 2000


@pytest.mark.parametrize("features", [NO_ELR, {}])
def test_unregistered_broker_leaves_the_isrs_and_is_forgotten(features: dict[str, int]) -> None:
    cluster = Cluster(broker_count=2, features=features)
    with_topic(cluster, [1, 2], [2, 1])

    cluster.commit(cluster.controller.decide_unregister_broker(1))

    assert 1 not in cluster.image.cluster.brokers
    assert [(partition(cluster, index).leader, partition(cluster, index).isr) for index in (0, 1)] == [(2, (2,))] * 2
    with pytest.raises(ApiError) as refusal:
        cluster.heartbeat(1)
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_partition_of_an_unregistered_broker_alone_has_no_leader_until_it_registers_again() -> None:
    cluster = Cluster(broker_count=1)
    with_topic(cluster, [1])

    cluster.commit(cluster.controller.decide_unregister_broker(1))
    gone = partition(cluster)
    cluster.start_broker(1, incarnation=2, previous_broker_epoch=cluster.epochs[1])

    assert (gone.leader, gone.replicas) == (NO_LEADER, (1,))
    assert partition(cluster).leader == 1


def test_unknown_broker_is_not_unregistered() -> None:
    with pytest.raises(ApiError) as refusal:
        end_of(Cluster(broker_count=1).controller.decide_unregister_broker(2))

    assert refusal.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controller_is_unregistered_from_4_4_iv2_on() -> None:
    cluster = Cluster(features={"metadata.version": 33})
    cluster.commit(
        Decision(None, [RegisterControllerRecord(controller_id=2), RegisterControllerRecord(controller_id=3)])
    )

    cluster.commit(cluster.controller.decide_unregister_controller(2))

    assert list(cluster.image.cluster.controllers) == [3]
    assert list(cluster.controller.brokers.controllers) == [3]


@pytest.mark.parametrize(
    ("level", "controller_id", "code", "message"),
    [
        (33, 1, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (33, 9, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 9 is not currently registered."),
        (
            32,
            9,
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        ),
    ],
)
def test_controller_that_is_not_unregistered(level: int, controller_id: int, code: int, message: str) -> None:
    cluster = Cluster(features={"metadata.version": level})

    with pytest.raises(ApiError) as refusal:
        cluster.controller.decide_unregister_controller(controller_id)

    assert (refusal.value.code, refusal.value.message) == (code, message)


@pytest.mark.parametrize(
    ("name", "level"), [("streams.version", 1), ("share.version", 2), ("share.version", 1), ("group.version", 1)]
)
def test_levels_that_a_broker_does_not_support_keep_it_away(name: str, level: int) -> None:
    cluster = Cluster(features={name: level})
    request = registration_request(1)
    request.features = [feature for feature in request.features if feature.name != name]

    with pytest.raises(ApiError, match=rf"does not support finalized version {level} of {name}"):
        end_of(cluster.controller.decide_register_broker(request, cluster.now_ms))
