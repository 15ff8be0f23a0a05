"""Which processes have the tasks of a streams group; reconciliation checks it before a member gets a task.

A task counts as long as a member has it assigned or must still revoke it.
"""

from collections.abc import Set

from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.tasks import AssignedTasks, Tasks

_NONE: Set[str] = frozenset()


class TaskOwners:
    """The process that runs each task, and the processes that have a copy of it."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, int], str] = {}
        self._standby: dict[tuple[str, int], set[str]] = {}
        self._warmup: dict[tuple[str, int], set[str]] = {}

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        return self._active.get((subtopology_id, partition))

    def standby_processes(self, subtopology_id: str, partition: int) -> Set[str]:
        return self._standby.get((subtopology_id, partition), _NONE)

    def warmup_processes(self, subtopology_id: str, partition: int) -> Set[str]:
        return self._warmup.get((subtopology_id, partition), _NONE)

    def add(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            self._add(tasks, member.process_id)

    def remove(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            self._remove(tasks, member.process_id)

    def _add(self, tasks: AssignedTasks, process_id: str) -> None:
        for subtopology_id, partitions in tasks.active.items():
            for partition in partitions:
                self._active[subtopology_id, partition] = process_id
        for copies, owners in ((tasks.standby, self._standby), (tasks.warmup, self._warmup)):
            for subtopology_id, numbers in copies.items():
                for partition in numbers:
                    owners.setdefault((subtopology_id, partition), set()).add(process_id)

    def _remove(self, tasks: AssignedTasks, process_id: str) -> None:
        for subtopology_id, partitions in tasks.active.items():
            for partition in partitions:
                if self._active.get((subtopology_id, partition)) == process_id:
                    del self._active[subtopology_id, partition]
        _remove_copies(tasks.standby, self._standby, process_id)
        _remove_copies(tasks.warmup, self._warmup, process_id)


def _remove_copies(tasks: Tasks, owners: dict[tuple[str, int], set[str]], process_id: str) -> None:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            processes = owners.get((subtopology_id, partition))
            if processes is not None:
                processes.discard(process_id)
                if not processes:
                    del owners[subtopology_id, partition]
