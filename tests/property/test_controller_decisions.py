"""The controller under random requests, many of them wrong: what it writes can be replayed, and partitions are sound.

Brokers come and go, with or without some of their directories; partitions are created, moved, elected, shrunk and
assigned, also twice in one request; and now and then another controller takes over.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType
from kafkapy.metadata.features import MV_3_3_IV3, MV_3_7_IV2, MV_4_0_IV1, record_version
from kafkapy.metadata.image import RESOURCE_TOPIC, ConfigResource
from kafkapy.metadata.record_serde import decode_record, encode_record
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.messages import alter_partition_reassignments_request as reassign_request
from kafkapy.protocol.messages import alter_partition_request, assign_replicas_to_dirs_request
from kafkapy.protocol.messages import create_partitions_request as grow_request
from kafkapy.protocol.messages import create_topics_request as create_request
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from tests.support.controllers import Cluster, new_controller, registration_request
from tests.support.placed_topics import NO_ELR

BROKERS: Final = range(1, 7)
TOPICS: Final = ("a", "b", "c", "d")
LEVELS: Final[list[dict[str, int]]] = [
    {},
    NO_ELR,
    *({"metadata.version": level, **NO_ELR} for level in (MV_3_3_IV3, MV_3_7_IV2, MV_4_0_IV1)),
]
STEPS: Final = 120


def directory(broker_id: int, number: int) -> bytes:
    return bytes(8) + broker_id.to_bytes(4) + (1000 + number).to_bytes(4)


class Requests:
    """Sends seeded requests to a controller."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(features=self.random.choice(LEVELS))
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.directories = {each: [directory(each, 1)] for each in BROKERS}
        for broker_id in BROKERS:
            self.restart(broker_id)
            self.heartbeat(broker_id)
        self.create()
        self.kinds: list[Callable[[], Any]] = [
            *[self.heartbeat_all] * 6,
            lambda: self.heartbeat(self.broker(), want_fence=True),
            lambda: self.heartbeat(self.broker(), want_shut_down=True),
            self.lose_directory,
            lambda: self.restart(self.broker()),
            self.pass_time,
            *[self.create] * 2,
            self.grow,
            self.delete,
            *[self.reassign] * 4,
            *[self.alter_isr] * 8,
            *[self.elect] * 2,
            *[self.assign] * 2,
            self.configure,
            self.unregister,
            self.take_over,
            self.stop_while_fencing,
        ]

    def step(self) -> None:
        """Send a request, and check what came of it."""
        written = len(self.cluster.log)
        level = self.cluster.image.features.levels["metadata.version"]
        self.random.choice(self.kinds)()
        for record in self.cluster.log[written:]:
            assert decode_record(encode_record(record, record_version(record, level))) is not None
        for name, topic in self.cluster.image.topics.by_name.items():
            for number, partition in topic.partitions.items():
                self._check(f"{name}-{number}", partition)
        for broker_id in BROKERS:
            leads = any(partition.leader == broker_id for partition in self.partitions())
            assert self.controller.partitions.has_leaderships(broker_id) == leads

    def _check(self, name: str, partition: PartitionRegistration) -> None:
        replicas, isr, elr = partition.replicas, partition.isr, partition.elr
        assert replicas, name
        assert len(set(replicas)) == len(replicas) == len(partition.directories), name
        assert len(set(isr)) == len(isr), name
        assert set(isr) | set(elr) | {*partition.adding_replicas, *partition.removing_replicas} <= set(replicas), name
        assert not set(isr) & set(elr), name
        if partition.leader >= 0:
            assert partition.leader in isr, name
            assert all(not self.cluster.image.cluster.brokers[each].fenced for each in isr), name

    # -- the requests ---------------------------------------------------------------------------------------------

    @property
    def controller(self) -> Any:
        return self.cluster.controller

    def decide(self, decide: Callable[[], Any]) -> Any:
        try:
            return self.cluster.commit(decide())
        except ApiError:
            return None

    def broker(self) -> int:
        return self.random.choice(BROKERS)

    def topic(self) -> Any:
        """Return a topic that exists, None if there is none."""
        topics = list(self.cluster.image.topics.by_name.values())
        return self.random.choice(topics) if topics else None

    def partitions(self) -> list[PartitionRegistration]:
        return [each for topic in self.cluster.image.topics.by_name.values() for each in topic.partitions.values()]

    def replicas(self) -> list[int]:
        """Return some brokers, now and then ones that are not there, or one of them twice."""
        if self.random.random() < 0.05:
            return self.random.choices(range(9), k=self.random.randrange(4))
        return self.random.sample(BROKERS, self.random.choice((1, 2, 3, 3, 4)))

    def restart(self, broker_id: int) -> None:
        found = [directory(broker_id, number) for number in range(1, self.random.choice((2, 3, 3, 4)))]
        request = registration_request(
            broker_id,
            incarnation=self.incarnations[broker_id] + 1,
            log_dirs=found,
            previous_broker_epoch=self.cluster.epochs.get(broker_id, -1) if self.random.random() < 0.5 else -1,
        )
        response = self.decide(lambda: self.controller.decide_register_broker(request, self.cluster.now_ms))
        if response is not None:
            self.incarnations[broker_id] += 1
            self.directories[broker_id] = found
            self.cluster.epochs[broker_id] = response.broker_epoch

    def heartbeat(self, broker_id: int, **changes: Any) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.cluster.epochs.get(broker_id, -1),
            current_metadata_offset=self.controller.next_offset - 1,
            **changes,
        )
        self.decide(lambda: self.controller.decide_heartbeat(request, self.cluster.now_ms))

    def heartbeat_all(self) -> None:
        for broker_id in BROKERS:
            self.heartbeat(broker_id)

    def lose_directory(self) -> None:
        broker_id = self.broker()
        if len(self.directories[broker_id]) > 1:
            self.heartbeat(broker_id, offline_log_dirs=[self.directories[broker_id].pop()])

    def pass_time(self) -> None:
        self.cluster.now_ms += self.random.choice((1000, 1000, 10_000))
        while self.decide(lambda: self.controller.decide_fence_expired(self.cluster.now_ms)):
            pass

    def create(self) -> None:
        lists = [self.replicas() for _ in range(self.random.randrange(4))]
        topic = create_request.CreatableTopic(
            self.random.choice(TOPICS),
            num_partitions=-1 if lists else self.random.randrange(-1, 4),
            replication_factor=-1 if lists else self.random.randrange(-1, 4),
            assignments=[
                create_request.CreatableReplicaAssignment(number, broker_ids=ids) for number, ids in enumerate(lists)
            ],
        )
        request = create_request.CreateTopicsRequest(topics=[topic])
        self.decide(lambda: self.controller.topics.decide_create(request))

    def grow(self) -> None:
        if (topic := self.topic()) is not None:
            lists = [self.replicas() for _ in range(self.random.randrange(3))]
            assignments = [grow_request.CreatePartitionsAssignment(each) for each in lists]
            count = len(topic.partitions) + len(lists)
            grown = grow_request.CreatePartitionsTopic(topic.name, count=count, assignments=assignments or None)
            request = grow_request.CreatePartitionsRequest(topics=[grown])
            self.decide(lambda: self.controller.topics.decide_create_partitions(request))

    def delete(self) -> None:
        if (topic := self.topic()) is not None and self.random.random() < 0.3:
            self.decide(lambda: self.controller.topics.decide_delete([topic.topic_id]))

    def reassign(self) -> None:
        if (topic := self.topic()) is None:
            return
        numbers = [self.random.randrange(len(topic.partitions) + 1) for _ in range(3)]
        targets = [(each, None if self.random.random() < 0.2 else self.replicas()) for each in numbers]
        partitions = [reassign_request.ReassignablePartition(each, replicas=target) for each, target in targets]
        reassigned = [reassign_request.ReassignableTopic(topic.name, partitions=partitions)]
        request = reassign_request.AlterPartitionReassignmentsRequest(topics=reassigned)
        self.decide(lambda: self.controller.reassignments.decide_alter(request))

    def alter_isr(self) -> None:
        if (topic := self.topic()) is None:
            return
        number, partition = self.random.choice(list(topic.partitions.items()))
        requested = []
        for _ in range(self.random.choice((1, 1, 1, 2))):
            wanted = [each for each in partition.replicas if self.random.random() < 0.8 or each == partition.leader]
            isr = wanted if self.random.random() < 0.95 else self.replicas()
            states = [
                alter_partition_request.BrokerState(broker_id=each, broker_epoch=self.cluster.epochs.get(each, -1))
                for each in isr
            ]
            requested.append(
                alter_partition_request.PartitionData(
                    partition_index=number,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    leader_recovery_state=self.random.choice((0, 0, 1)),
                    new_isr_with_epochs=states,
                )
            )
        request = alter_partition_request.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.cluster.epochs.get(partition.leader, -1),
            topics=[alter_partition_request.TopicData(topic_id=topic.topic_id, partitions=requested)],
        )
        self.decide(lambda: self.controller.partitions.decide_alter_partition(request, 3))

    def elect(self) -> None:
        wanted = [(name, number) for name in TOPICS for number in range(3)]
        elections = self.controller.elections
        decide: list[Callable[[], Any]] = [
            lambda: elections.decide_elect(self.random.choice((0, 1)), wanted),
            lambda: elections.decide_balance(wanted),
            self.controller.partitions.decide_unclean_elections,
        ]
        self.decide(self.random.choice(decide))

    def assign(self) -> None:
        if (topic := self.topic()) is None:
            return
        broker_id = self.broker()
        numbers = [self.random.randrange(3) for _ in range(2)]
        partitions = [assign_replicas_to_dirs_request.PartitionData(partition_index=each) for each in numbers]
        assigned = assign_replicas_to_dirs_request.TopicData(topic_id=topic.topic_id, partitions=partitions)
        request = assign_replicas_to_dirs_request.AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.cluster.epochs.get(broker_id, -1),
            directories=[
                assign_replicas_to_dirs_request.DirectoryData(id=directory(broker_id, number), topics=[assigned])
                for number in self.random.sample(range(1, 5), 2)
            ],
        )
        self.decide(lambda: self.controller.partitions.decide_assign_replicas(request))

    def configure(self) -> None:
        key, value = self.random.choice(
            (
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "2"),
                ("unclean.leader.election.enable", "true"),
                ("unclean.leader.election.enable", "false"),
            )
        )
        resource = ConfigResource(RESOURCE_TOPIC, self.random.choice(TOPICS))
        change = {resource: [ConfigOperation(key, ConfigOperationType.SET, value)]}
        self.decide(lambda: self.controller.configs.decide_incremental_alter(change))

    def unregister(self) -> None:
        if self.random.random() < 0.1:
            broker_id = self.broker()
            if self.decide(lambda: self.controller.decide_unregister_broker(broker_id)) is not None:
                self.cluster.epochs.pop(broker_id, None)

    def take_over(self) -> None:
        before = self.controller
        self.cluster.controller = new_controller(self.cluster.image, seed=self.random.randrange(1000))
        assert self.controller.next_offset == before.next_offset
        self.controller.brokers.load(self.cluster.image, self.cluster.now_ms)

    def stop_while_fencing(self) -> None:
        """Another controller takes over between the batches of a fencing: eligible replicas are elected then."""
        broker_id = self.broker()
        broker = self.cluster.image.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        fencing = self.controller.partitions.fence(broker_id)
        for _ in range(self.random.choice((1, 2))):
            self.cluster.commit(Decision(None, next(fencing)))
        self.take_over()
        assert self.decide(lambda: self.controller.decide_fence_expired(self.cluster.now_ms)) == []
        brokers = self.controller.brokers
        for partition in self.partitions():
            assert partition.leader >= 0 or not any(
                brokers.is_active(each) and brokers.has_online_directory(each, partition.directory_of(each))
                for each in partition.isr or partition.elr
            )


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_asked_every_partition_is_sound(seed: int) -> None:
    requests = Requests(seed)
    for _ in range(STEPS):
        requests.step()
