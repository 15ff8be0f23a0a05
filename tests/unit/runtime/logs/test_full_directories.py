"""What each check of full directories does: with replicas, and with logs that found no room."""

import errno
from typing import Any

from kafkapy.metadata.registrations import DIRECTORY_LOST
from kafkapy.replication.partition import Role
from kafkapy.runtime.broker.directory_assignments import Assignment
from kafkapy.runtime.logs.full_directories import FullDirectories
from kafkapy.storage.checkpoint import MetaProperties
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting


class FakeAssignments:
    """A DirectoryAssignments that only collects."""

    def __init__(self) -> None:
        self.assigned: list[Assignment] = []

    def is_pending(self, _topic_id: bytes, _partition_id: int) -> bool:
        return False

    def assign(self, assignment: Assignment) -> None:
        self.assigned.append(assignment)


class Looks:
    """A node's FullDirectories; what it has applied again is applied at once, or by `apply`."""

    def __init__(self, hosting: Hosting, *, is_applied_at_once: bool = True) -> None:
        self.hosting = hosting
        self.assignments: Any = FakeAssignments()
        self.again: list[tuple[Any, Any]] = []
        self._is_applied_at_once = is_applied_at_once
        self.full = FullDirectories(
            hosting.manager, self.assignments, on_resigned=lambda partition: None, apply_again=self._apply_again
        )

    def look(self, count: int = 1) -> None:
        for _ in range(count):
            for _ in self.full.check():
                pass

    def _apply_again(self, delta: Any, image: Any) -> None:
        self.hosting.manager.announce(image)
        self.again.append((delta, image))
        if self._is_applied_at_once:
            self.apply()

    def apply(self) -> None:
        delta, image = self.again[-1]
        for _ in self.hosting.manager.apply_delta(delta, image, self.hosting.clock.wall_ms()):
            pass


def role_of(hosting: Hosting, topic: str = "orders") -> Role:
    partition = hosting.manager.partitions.find(topic, 0)
    assert partition is not None
    return partition.role


async def test_a_replica_that_was_given_away_is_forgotten_with_its_topic(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    looks = Looks(hosting)
    hosting.disk.capacity_bytes = hosting.disk.used_bytes()
    hosting.log_manager.directories[0].state.mark_full()
    looks.look()
    [given_away] = looks.assignments.assigned
    assert given_away.directory_id == DIRECTORY_LOST
    given_away.on_accepted()
    assert role_of(hosting) is Role.RESIGNED
    hosting.delete_topic()
    looks.look()
    assert (looks.full._given_away, looks.full._accepted) == (set(), {})
    given_away.on_accepted()  # the response to a try that was thought lost
    looks.look()
    assert looks.full._accepted == {}


async def test_a_replica_that_is_given_away_again_between_looks_is_taken_back(loop: SimLoop) -> None:
    """As LogDirMover does it, with the metadata that has the replica's directory again."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    looks = Looks(hosting)
    directory = hosting.log_manager.directories[0]
    directory.write_meta(MetaProperties("cluster", 1, directory_id=b"directory of one"))
    used_bytes = hosting.disk.used_bytes()
    partition = hosting.manager.partitions.find("orders", 0)
    assert partition is not None
    assert partition.log is not None

    def accept_next(count: int) -> bytes:
        newest: Assignment = looks.assignments.assigned[-1]
        assert (len(looks.assignments.assigned), newest.on_accepted is not None) == (count, True)
        newest.on_accepted()
        return newest.directory_id

    hosting.disk.capacity_bytes = used_bytes
    directory.state.mark_full()
    looks.look()
    assert accept_next(1) == DIRECTORY_LOST
    hosting.disk.capacity_bytes = None
    looks.look()
    assert accept_next(2) == directory.directory_id
    hosting.disk.capacity_bytes = used_bytes
    directory.state.mark_full()
    registration = hosting.manager.partitions.newest_image.topics.by_id[partition.topic_id].partitions[0]
    place = looks.full.place_of(partition.log, registration, partition.topic_id)
    assert place == DIRECTORY_LOST
    looks.assignments.assign(looks.full.assignment(partition.topic_id, 0, place))
    assert accept_next(3) == DIRECTORY_LOST
    hosting.disk.capacity_bytes = None
    looks.look()
    assert accept_next(4) == directory.directory_id


async def test_a_log_that_lacked_room_is_not_applied_again_before_the_last_try_is_over(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.disk.fail("write", errno.ENOSPC, path="partition.metadata")
    offline = hosting.create_topic()
    assert offline.role is Role.OFFLINE
    looks = Looks(hosting, is_applied_at_once=False)
    looks.look(3)
    assert len(looks.again) == 1
    looks.apply()
    assert (offline.role, role_of(hosting)) == (Role.GONE, Role.LEADER)
    looks.look(3)
    assert len(looks.again) == 1


async def test_a_disk_that_has_room_but_takes_no_log_is_tried_ever_less_often(loop: SimLoop) -> None:
    """It has no inodes, for example. Meanwhile this node goes on leading what it has."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic("led", replicas=(1, 2))
    hosting.disk.fail("write", errno.ENOSPC, path="/data/orders-0/partition.metadata", times=1000)
    hosting.create_topic(replicas=(1, 2))
    looks = Looks(hosting)
    looks.look(100)
    assert len(looks.again) == 7
    assert (looks.assignments.assigned, role_of(hosting), role_of(hosting, "led")) == ([], Role.OFFLINE, Role.LEADER)
    hosting.disk.heal()
    looks.look(30)
    assert role_of(hosting) is Role.LEADER
