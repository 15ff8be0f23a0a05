"""Asks the brokers of a cluster for leaders, replicas in sync and the controller, and waits for them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from kafkapy.errors import KafkapyError, first_of, unknown
from kafkapy.server.cluster import queries
from kafkapy.server.cluster.plan import HOST, ClusterError, ClusterPlan, NodePlan
from kafkapy.server.cluster.processes import POLL_S

T = TypeVar("T")

QUESTION_TIMEOUT_S: Final = 30.0
NEW_TOPIC_S: Final = 1.0
"""How long brokers may not yet know a topic that a client has just created."""
NO_RESPONSE: Final = "no broker answers"
SHOWN: Final = 8
"""How many names an error shows."""


class ClusterObserver:
    """Sends requests to the brokers that should answer. Its methods raise ClusterError once their time is over."""

    def __init__(self, plan: ClusterPlan, is_answering: Callable[[int], bool]) -> None:
        """`is_answering`: whether a node runs, and is not paused."""
        self._plan = plan
        self._is_answering = is_answering

    def ask(self) -> queries.Ask:
        """Return the function that sends requests to a broker that answers. Raises ClusterError."""
        return queries.asking(self._running()[0].query_address)

    def addresses(self) -> dict[int, queries.Address]:
        """Return where the nodes reach the brokers that answer. Raises ClusterError if there is none."""
        return {broker.node_id: broker.query_address for broker in self._running()}

    def partitions(self) -> queries.TopicPartitions:
        """Return the partitions of all topics, from the first broker that knows them."""
        return self._until(lambda: next(self._views_of_some(), None), NO_RESPONSE)

    def controller(self) -> int:
        """Return the active controller; wait for one."""

        def find() -> int | None:
            for node in self._plan.controllers:
                if self._is_answering(node.node_id):
                    leader_id, _ = queries.controllers(queries.asking((HOST, node.controller_port)))
                    if leader_id >= 0 and self._is_answering(leader_id):
                        return leader_id
            return None

        return self._until(find, "there is no active controller")

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; wait for a leader that runs."""
        self._wait_for_topic(topic, partition)

        def find() -> int | None:
            leader = self.partitions().leaders.get(topic, {}).get(partition, -1)
            return leader if self._is_answering(leader) else None

        return self._until(find, f"no running broker leads {topic}-{partition}")

    def wait_for_leaders(self, topics: Sequence[str], timeout_s: float) -> None:
        """Return once each broker knows a leader of each partition of these topics."""
        lacking: str | None = NO_RESPONSE

        def are_known() -> bool:
            nonlocal lacking
            lacking = NO_RESPONSE
            lacking = self._lacks(topics)
            return lacking is None

        self._until(are_known, lambda: str(lacking), timeout_s)

    def wait_in_sync(self, topics: Sequence[str], timeout_s: float) -> None:
        """Return once each broker has all replicas in sync, of these topics or of all."""
        missing: list[str] = []
        for topic in topics:
            self._wait_for_topic(topic, 0)

        def is_in_sync() -> bool:
            missing[:] = []
            for found in self._views():
                missing.extend(name for name in found.under_replicated if name not in missing)
            if topics:
                missing[:] = [name for name in missing if name.rpartition("-")[0] in topics]
            return not missing

        self._until(is_in_sync, lambda: f"not in sync: {first_of(missing, SHOWN) or NO_RESPONSE}", timeout_s)

    def wait_for_each(self, is_met: Callable[[queries.Ask], bool], complaint: str) -> None:
        """Return once `is_met` is true of each broker that runs."""

        def is_met_by_all() -> bool:
            return all(is_met(queries.asking(broker.query_address)) for broker in self._running())

        self._until(is_met_by_all, complaint)

    def _running(self) -> list[NodePlan]:
        """Return the brokers that should answer. Raises ClusterError if there is none."""
        found = [broker for broker in self._plan.brokers if self._is_answering(broker.node_id)]
        if not found:
            raise ClusterError("no broker runs")
        return found

    def _views(self) -> Iterator[queries.TopicPartitions]:
        """Yield the partitions as each running broker sees them. Raises ClusterError, OSError, ProtocolError."""
        for broker in self._running():
            yield _view(broker)

    def _views_of_some(self) -> Iterator[queries.TopicPartitions]:
        """Yield the same, without brokers that do not answer: their disk may be full. Raises ClusterError."""
        for broker in self._running():
            with contextlib.suppress(OSError, KafkapyError):
                yield _view(broker)

    def _lacks(self, names: Sequence[str]) -> str | None:
        """Return which of these topics has a partition without a leader, or is unknown to a broker; None if none."""
        for found in self._views():
            for name in names:
                if name not in found.leaders or -1 in found.leaders[name].values():
                    return f"a broker knows no leader of {name}"
        return None

    def _wait_for_topic(self, topic: str, partition: int) -> None:
        """Return if a broker knows the partition. Brokers learn of a new topic one after another, so wait a moment.

        Raises ClusterError.
        """
        deadline = time.monotonic() + NEW_TOPIC_S
        while True:
            views = [self.partitions(), *self._views_of_some()]
            if any(partition in found.leaders.get(topic, {}) for found in views):
                return
            if time.monotonic() > deadline:
                raise ClusterError(_unknown_partition(views[0], topic, partition))
            time.sleep(POLL_S)

    def _until(
        self, find: Callable[[], T | None], complaint: str | Callable[[], str], timeout_s: float = QUESTION_TIMEOUT_S
    ) -> T:
        """Poll `find` until it returns another value than None or False. Errors of a node that stops count as None."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError, KafkapyError):
                found = find()
                if found is not None and found is not False:
                    return found
            if time.monotonic() > deadline:
                text = complaint if isinstance(complaint, str) else complaint()
                raise ClusterError(f"{text} after {timeout_s:.0f} s")
            time.sleep(POLL_S)


def _view(broker: NodePlan) -> queries.TopicPartitions:
    return queries.partitions(queries.asking(broker.query_address))


def _unknown_partition(found: queries.TopicPartitions, topic: str, partition: int) -> str:
    if topic in found.leaders:
        return f"topic {topic} has no partition {partition}: it has {len(found.leaders[topic])}, from 0 on"
    return unknown("topic", topic, found.leaders, SHOWN)
