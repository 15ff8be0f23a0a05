"""The tasks that the assignor `sticky` has assigned so far to the members of a process."""

from kafkapy.group.hash_order import hash_of_text, in_put_order
from kafkapy.group.streams.java_queue import JavaQueue
from kafkapy.group.streams.tasks import TaskId


class ProcessState:
    """The members of a process with their tasks. A task is at most once in a process, active or standby."""

    __slots__ = ("_members_by_load", "_task_count", "_tasks", "active", "member_task_counts", "standby")

    def __init__(self) -> None:
        self.member_task_counts: dict[str, int] = {}
        self.active: dict[str, set[TaskId]] = {}
        self.standby: dict[str, set[TaskId]] = {}
        self._tasks: set[TaskId] = set()
        self._task_count = 0
        self._members_by_load: JavaQueue[str] | None = None
        """The members by load, built when needed; None again after an assignment to a certain member."""

    @property
    def load(self) -> float:
        """Return the number of tasks per member."""
        assert self.member_task_counts, "a process is known by its members"
        return self._task_count / len(self.member_task_counts)

    def add_member(self, member_id: str) -> None:
        assert member_id not in self.member_task_counts, f"{member_id} is in its process already"
        self.member_task_counts[member_id] = 0

    def has_task(self, task: TaskId) -> bool:
        return task in self._tasks

    def add_task(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Assign a task to a member; return how many the member has now."""
        self._members_by_load = None
        return self._add(member_id, task, is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        """Assign a task to the member with the fewest tasks; return how many the member has now."""
        if len(self.member_task_counts) == 1:
            return self._add(next(iter(self.member_task_counts)), task, is_active)
        queue = self._members_by_load
        if queue is None:
            queue = self._members_by_load = JavaQueue()
            for member_id in in_put_order(self.member_task_counts, hash_of_text):
                queue.add(self.member_task_counts[member_id], member_id)
        member_id = queue.poll()
        count = self._add(member_id, task, is_active)
        queue.add(count, member_id)
        return count

    def _add(self, member_id: str, task: TaskId, is_active: bool) -> int:
        assert task not in self._tasks, f"{task} would be in a process twice"
        self._task_count += 1
        self._tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, set()).add(task)
        self.member_task_counts[member_id] += 1
        return self.member_task_counts[member_id]
