"""Requests of an earlier epoch that arrive late: the cluster refuses each with Kafka's code, and nothing changes.

A leader, a follower, a broker, a controller or a producer sends a request; the network delivers it after another one
has taken its place. The epochs are those that were current before the faults, or the ones before today's. The requests
arrive when all is healed and nothing else is written, so that whatever they change is seen.

    late epoch        request                                     code
    broker            AlterPartition, BrokerHeartbeat             STALE_BROKER_EPOCH
    broker            Fetch of a follower                         NOT_LEADER_OR_FOLLOWER (KIP-903)
    leader            AlterPartition, Fetch                       FENCED_LEADER_EPOCH
    partition         AlterPartition                              INVALID_UPDATE_VERSION
    controller        Vote, BeginQuorumEpoch, EndQuorumEpoch      FENCED_LEADER_EPOCH
    producer          Produce                                     INVALID_PRODUCER_EPOCH
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import (
    alter_partition_request,
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    vote_request,
)
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.cluster_checker import ViolationError
from tests.simulator.cluster_clients import Connections, LostError, Place, produce_request
from tests.simulator.cluster_world import CLUSTER_ID, CONTROLLER_PORT, ClusterWorld, Computer
from tests.simulator.loop import START_WALL_MS
from tests.support.batches import build_batch

HOST: Final = "10.1.0.98"
SETTLES_S: Final = 0.1
"""After this what a request has changed is in every image, though by itself the cluster writes nothing."""
VERSIONS: Final = {0: 13, 1: 17, 22: 5, 52: 2, 53: 1, 54: 1, 56: 3, 63: 1}


Node = tuple[Computer, Connections]
Late = tuple[ErrorCode, Node, Any]
"""The code that is due, the node that is asked, and the request."""


class StaleRequests:
    """Remembers the epochs of before the faults; sends requests of theirs in the end."""

    def __init__(self, world: ClusterWorld, topic: str) -> None:
        self.sent_count = 0
        self._world = world
        self._partition = TopicPartition(topic, 0)
        self._clients = Connections(world, "late", HOST)
        self._controllers = Connections(world, "late", HOST, port=CONTROLLER_PORT)
        self._before: MetadataImage | None = None
        self._producer_id = -1

    def remember(self) -> None:
        self._before = self._world.image()

    async def begin_producer_epoch(self) -> None:
        """Write a record in epoch 1 of a new producer, so that its epoch 0 is over."""
        while True:
            try:
                response = await self._clients.send_to_any(InitProducerIdRequest(transactional_id=None))
                if response.error_code == ErrorCode.NONE:
                    written = await self._respond(self._leader(), self._write(response.producer_id, 1))
                    if code_of(written) == ErrorCode.NONE:
                        self._producer_id = response.producer_id
                        return
            except LostError:
                pass
            await asyncio.sleep(0.1)

    async def send_all(self) -> None:
        """Send what is late. All is healed and has settled; a producer's epoch has begun.

        Raises ViolationError where a request is not refused, refused by another code, or has changed anything.
        """
        before = self._state()
        requests = list(self._requests())
        responses = await asyncio.gather(*(self._respond(*each[1:]) for each in requests))
        for (expected, _, request), response in zip(requests, responses, strict=True):
            code = code_of(response)
            if code != expected:
                raise ViolationError(f"{ErrorCode(code).name}, not {expected.name}, answers the late {request}")
        self.sent_count += len(requests)
        await asyncio.sleep(SETTLES_S)
        after = self._state()
        for name, value in before.items():
            if after[name] != value:
                raise ViolationError(f"late requests have changed the {name}: {value}, then {after[name]}")

    async def _respond(self, node: Node, request: Any) -> Any:
        computer, connections = node
        return await connections.call(computer.node_id, request, VERSIONS.get(request.API_KEY))

    def _leader(self) -> Node:
        return self._world.computers[self._registration().leader], self._clients

    def _registration(self) -> PartitionRegistration:
        return self._world.registrations()[self._partition]

    def _state(self) -> dict[str, object]:
        """Return what must stay as it is."""
        image = self._world.image()
        assert image is not None
        logs = {
            (computer.node_id, *partition.log.topic_partition): partition.log.log_end_offset
            for computer in self._world.brokers
            for partition in computer.partitions()
            if partition.log is not None and not partition.log.topic_partition.topic.startswith("__")
        }
        return {
            "topics": image.topics,
            "brokers": image.cluster,
            "epoch of the quorum": image.provenance.leader_epoch,
            "logs": logs,
        }

    # -- the requests ---------------------------------------------------------------------------------------------

    def _requests(self) -> Iterator[Late]:
        image, now = self._world.image(), self._registration()
        assert image is not None
        topic_id = image.topics.by_name[self._partition.topic].topic_id
        leader = self._leader()
        active = self._active_controller(), self._controllers
        yield from self._of_brokers(image, now, topic_id, active)
        yield from self._of_leaders(image, now, topic_id, active)
        yield from self._of_controllers(image.provenance.leader_epoch, active[0])
        for replica, broker_epoch in self._late_brokers(image).items():
            if replica in now.replicas and replica != now.leader:
                fetch = self._fetch(topic_id, now.leader_epoch, replica, broker_epoch)
                yield ErrorCode.NOT_LEADER_OR_FOLLOWER, leader, fetch
        if now.leader_epoch > 0:
            yield ErrorCode.FENCED_LEADER_EPOCH, leader, self._fetch(topic_id, now.leader_epoch - 1, -1, -1)
        yield ErrorCode.INVALID_PRODUCER_EPOCH, leader, self._write(self._producer_id, 0)

    def _active_controller(self) -> Computer:
        for computer in self._world.computers.values():
            if computer.is_controller and computer.server is not None and computer.server.node.controller.is_active:
                return computer
        raise AssertionError("no controller is active, though all is healed")

    def _late_brokers(self, image: MetadataImage) -> dict[int, int]:
        """Return the former epochs of brokers that have registered again."""
        assert self._before is not None
        brokers = image.cluster.brokers
        return {
            each.id: each.epoch
            for each in self._before.cluster.brokers.values()
            if each.id in brokers and brokers[each.id].epoch > each.epoch
        }

    def _of_brokers(
        self, image: MetadataImage, now: PartitionRegistration, topic_id: bytes, node: Node
    ) -> Iterator[Late]:
        for broker_id, epoch in self._late_brokers(image).items():
            heartbeat = BrokerHeartbeatRequest(
                broker_id, broker_epoch=epoch, current_metadata_offset=image.provenance.last_offset, want_shut_down=True
            )
            yield ErrorCode.STALE_BROKER_EPOCH, node, heartbeat
            if broker_id == now.leader:
                altered = self._alter(now, topic_id, epoch, now.leader_epoch, now.partition_epoch)
                yield ErrorCode.STALE_BROKER_EPOCH, node, altered

    def _of_leaders(
        self, image: MetadataImage, now: PartitionRegistration, topic_id: bytes, node: Node
    ) -> Iterator[Late]:
        broker_epoch = image.cluster.brokers[now.leader].epoch
        if now.leader_epoch > 0:
            altered = self._alter(now, topic_id, broker_epoch, now.leader_epoch - 1, now.partition_epoch)
            yield ErrorCode.FENCED_LEADER_EPOCH, node, altered
        if now.partition_epoch > 0:
            altered = self._alter(now, topic_id, broker_epoch, now.leader_epoch, now.partition_epoch - 1)
            yield ErrorCode.INVALID_UPDATE_VERSION, node, altered

    def _alter(
        self, now: PartitionRegistration, topic_id: bytes, broker_epoch: int, leader_epoch: int, partition_epoch: int
    ) -> Any:
        """Return a leader's request for an ISR of itself alone."""
        partition = alter_partition_request.PartitionData(
            partition_index=self._partition.partition,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            new_isr_with_epochs=[alter_partition_request.BrokerState(broker_id=now.leader, broker_epoch=-1)],
        )
        topic = alter_partition_request.TopicData(topic_id=topic_id, partitions=[partition])
        return alter_partition_request.AlterPartitionRequest(now.leader, broker_epoch=broker_epoch, topics=[topic])

    def _of_controllers(self, leader_epoch: int, controller: Computer) -> Iterator[Late]:
        """Requests of another voter that led the quorum in the epoch before, or wanted to."""
        others = [each for each in self._world.computers.values() if each.is_controller and each is not controller]
        if leader_epoch < 2 or not others:
            return
        former, late_epoch = others[0], leader_epoch - 1
        for voter in (controller, others[-1]):
            vote = vote_request.PartitionData(
                partition_index=0,
                replica_epoch=late_epoch,
                replica_id=former.node_id,
                replica_directory_id=former.directory_id,
                voter_directory_id=voter.directory_id,
                last_offset_epoch=late_epoch - 1,
                last_offset=1 << 40,
            )
            begun = begin_quorum_epoch_request.PartitionData(
                0, voter_directory_id=voter.directory_id, leader_id=former.node_id, leader_epoch=late_epoch
            )
            ended = end_quorum_epoch_request.PartitionData(
                partition_index=0, leader_id=former.node_id, leader_epoch=late_epoch
            )
            name = METADATA_PARTITION.topic
            for request in (
                vote_request.VoteRequest(
                    CLUSTER_ID, voter_id=voter.node_id, topics=[vote_request.TopicData(name, partitions=[vote])]
                ),
                begin_quorum_epoch_request.BeginQuorumEpochRequest(
                    CLUSTER_ID,
                    voter_id=voter.node_id,
                    topics=[begin_quorum_epoch_request.TopicData(name, partitions=[begun])],
                ),
                end_quorum_epoch_request.EndQuorumEpochRequest(
                    CLUSTER_ID, topics=[end_quorum_epoch_request.TopicData(name, partitions=[ended])]
                ),
            ):
                yield ErrorCode.FENCED_LEADER_EPOCH, (voter, self._controllers), request

    def _fetch(self, topic_id: bytes, leader_epoch: int, replica_id: int, broker_epoch: int) -> FetchRequest:
        """Return a fetch of a follower, or of a consumer (-1)."""
        replicas = [each.partition(self._partition) for each in self._world.brokers]
        start = max(each.log.log_start_offset for each in replicas if each is not None and each.log is not None)
        partition = FetchPartition(
            self._partition.partition, current_leader_epoch=leader_epoch, fetch_offset=start, partition_max_bytes=1
        )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
            topics=[FetchTopic(self._partition.topic, topic_id=topic_id, partitions=[partition])],
        )

    def _write(self, producer_id: int, epoch: int) -> Any:
        """Return the first write of a producer's epoch."""
        image, now = self._world.image(), self._registration()
        assert image is not None
        data = build_batch(
            [(START_WALL_MS + self._world.loop.now_ms(), None, b"epoch %d" % epoch, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        place = Place(image.topics.by_name[self._partition.topic].topic_id, now.leader, now.leader_epoch)
        return produce_request(place, *self._partition, data)


def code_of(response: Any) -> int:
    """Return a response's error code, or that of its only partition."""
    if code := getattr(response, "error_code", 0):
        return int(code)
    topics = getattr(response, "topics", None) or getattr(response, "responses", ())
    for topic in topics:
        for partition in getattr(topic, "partitions", None) or topic.partition_responses:
            return int(partition.error_code)
    return 0
