"""A member's next step towards its target: each case of Apache Kafka's CurrentAssignmentBuilderTest.

Tasks are written as `SUBTOPOLOGY:PARTITION@EPOCH,...`; without an epoch a task was assigned at the member's. A case is
tried with active tasks, standbys and warm-ups, if it does not name the roles. `active`, `standby` and `warmup`: the
processes that have all tasks in this role, or the tasks that a process has.
"""

from dataclasses import replace

import pytest

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.reconcile import Owned, reconcile
from kafkapy.group.streams.task_owners import TaskOwners
from kafkapy.group.streams.tasks import AssignedTasks, MemberState, TasksTuple
from kafkapy.protocol.error_code import ErrorCode

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = (
    MemberState.STABLE,
    MemberState.UNREVOKED_TASKS,
    MemberState.UNRELEASED_TASKS,
    MemberState.UNKNOWN,
)
ROLES = ("active", "standby", "warmup")
OWN, OTHER = "process", "other process"
ALL = "a:1,2,3,4,5,6,7 b:1,2,3,4,5,6,7"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    state: MemberState
    epoch: int
    assigned: str
    target_epoch: int
    target: str
    after: tuple[MemberState, int, str, str] | None
    """State, epoch, assigned, pending revocation; None if the member stays as it is."""
    previous_epoch: int | None = None
    pending: str = ""
    owned: str | None = None
    """What it reports to have; None if it reports nothing, "" if it reports that it has none."""
    active: str = ""
    standby: str = ""
    warmup: str = ""
    is_of_another_process: bool = False
    """Whether the tasks of active, standby and warmup are those of another process."""
    roles: tuple[str, ...] = ROLES


CASES = [
    Case(
        "stable to stable",
        STABLE,
        10,
        "a:1,2 b:3,4",
        11,
        "a:1,2 b:3,4",
        (STABLE, 11, "a:1@10,2@10 b:3@10,4@10", ""),
        active=ALL,
    ),
    Case("stable at the target's epoch", STABLE, 10, "a:1,2 b:3,4", 10, "a:1,2 b:3,4", None, active=ALL),
    Case(
        "stable with new tasks",
        STABLE,
        10,
        "a:1@9,2@8 b:3@9,4@8",
        11,
        "a:1,2,4 b:3,4,7",
        (STABLE, 11, "a:1@9,2@8,4@11 b:3@9,4@8,7@11", ""),
    ),
    Case("stable to unrevoked", STABLE, 10, "a:1,2 b:3,4", 11, "a:2,3 b:4,5", (UNREVOKED, 10, "a:2 b:4", "a:1 b:3")),
    Case(
        "stable to unrevoked with an empty assignment",
        STABLE,
        10,
        "a:1,2 b:3,4",
        11,
        "",
        (UNREVOKED, 10, "", "a:1,2 b:3,4"),
        active=ALL,
    ),
    Case(
        "stable to unreleased",
        STABLE,
        10,
        "a:1,2 b:3,4",
        11,
        "a:1,2,4 b:3,4,7",
        (UNRELEASED, 11, "a:1@10,2@10 b:3@10,4@10", ""),
        active=ALL,
    ),
    Case(
        "stable to unreleased, what is to be revoked is not owned",
        STABLE,
        10,
        "a:1,2 b:3,4",
        11,
        "a:1,2 b:3,5",
        (UNRELEASED, 11, "a:1@10,2@10 b:3@10", ""),
        owned="",
        active="b:1,2,3,4,5",
    ),
    Case(
        "unrevoked to stable",
        UNREVOKED,
        10,
        "a:2,3 b:5,6",
        11,
        "a:2,3 b:5,6",
        (STABLE, 11, "a:2@10,3@10 b:5@10,6@10", ""),
        pending="a:1 b:4",
        owned="a:2,3 b:5,6",
    ),
    Case("remains unrevoked, tells no tasks", UNREVOKED, 10, "a:2,3 b:5,6", 12, "a:3 b:6", None, pending="a:1 b:4"),
    Case(
        "remains unrevoked, has one",
        UNREVOKED,
        10,
        "a:2,3 b:5,6",
        12,
        "a:3 b:6",
        None,
        pending="a:1 b:4",
        owned="a:1,2,3 b:5,6",
    ),
    Case(
        "remains unrevoked, has the other",
        UNREVOKED,
        10,
        "a:2,3 b:5,6",
        12,
        "a:3 b:6",
        None,
        pending="a:1 b:4",
        owned="a:2,3 b:4,5,6",
    ),
    Case(
        "unrevoked to unrevoked",
        UNREVOKED,
        10,
        "a:2,3 b:5,6",
        12,
        "a:3 b:6",
        (UNREVOKED, 11, "a:3@10 b:6@10", "a:2@10 b:5@10"),
        pending="a:1 b:4",
        owned="a:2,3 b:5,6",
    ),
    Case(
        "unrevoked to unreleased",
        UNREVOKED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        (UNRELEASED, 11, "a:2,3 b:5,6", ""),
        previous_epoch=10,
        pending="a:1 b:4",
        owned="a:2,3 b:5,6",
        active=ALL,
    ),
    Case(
        "unreleased to stable",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        12,
        "a:2,3 b:5,6",
        (STABLE, 12, "a:2@11,3@11 b:5@11,6@11", ""),
        active=ALL,
        standby=ALL,
        warmup=ALL,
        is_of_another_process=True,
    ),
    Case(
        "unreleased to stable with new tasks",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        (STABLE, 11, "a:2,3,4 b:5,6,7", ""),
    ),
    Case(
        "remains unreleased",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        None,
        active=ALL,
        standby=ALL,
        warmup=ALL,
    ),
    Case(
        "remains unreleased, a standby of its process has it",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        None,
        standby=ALL,
        roles=("active", "warmup"),
    ),
    Case(
        "remains unreleased, a warm-up of its process has it",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        None,
        warmup=ALL,
        roles=("standby",),
    ),
    Case(
        "remains unreleased, another process runs one",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        11,
        "a:2,3,4 b:5,6,7",
        (UNRELEASED, 11, "a:2,3 b:5,6,7", ""),
        active="a:4",
        is_of_another_process=True,
        roles=("active",),
    ),
    Case(
        "unreleased to unrevoked",
        UNRELEASED,
        11,
        "a:2,3 b:5,6",
        12,
        "a:3 b:6",
        (UNREVOKED, 11, "a:3 b:6", "a:2 b:5"),
        pending="a:4 b:7",
        active=ALL,
        is_of_another_process=True,
    ),
    Case(
        "unknown, has given all up",
        UNKNOWN,
        11,
        "a:3 b:6",
        12,
        "a:3 b:6",
        (STABLE, 12, "a:3@11 b:6@11", ""),
        pending="a:2 b:5",
        owned="",
        active=ALL,
    ),
    Case(
        "mixed epochs",
        UNREVOKED,
        10,
        "a:1@5,2@6",
        11,
        "a:1,2 b:3,5",
        (STABLE, 11, "a:1@5,2@6 b:3@11,5@11", ""),
        pending="b:3@7,4@8",
        owned="a:1",
        roles=("active",),
    ),
]


def epochs_of(text: str, epoch: int) -> dict[str, dict[int, int]]:
    """Return the epoch of each task; `epoch` is that of tasks that name none."""
    found: dict[str, dict[int, int]] = {}
    for each in text.split():
        subtopology_id, _, tasks = each.partition(":")
        pairs = (task.partition("@") for task in tasks.split(","))
        found[subtopology_id] = {int(number): int(given or epoch) for number, _, given in pairs}
    return found


def numbers_of(text: str) -> dict[str, frozenset[int]]:
    return {each: frozenset(numbers) for each, numbers in epochs_of(text, 0).items()}


def assigned_of(role: str, text: str, epoch: int) -> AssignedTasks:
    if role == "active":
        return AssignedTasks(active=epochs_of(text, epoch))
    return AssignedTasks(**{role: numbers_of(text)})


def owners_of(case: Case) -> TaskOwners:
    owners = TaskOwners()
    process_id = OTHER if case.is_of_another_process else OWN
    for role in ROLES:
        tasks = assigned_of(role, getattr(case, role), 1)
        owners.add(StreamsMember(f"another with {role}", process_id=process_id, assigned=tasks))
    return owners


def member_of(case: Case, role: str) -> StreamsMember:
    return StreamsMember(
        "member",
        member_epoch=case.epoch,
        previous_member_epoch=case.epoch if case.previous_epoch is None else case.previous_epoch,
        state=case.state,
        process_id=OWN,
        assigned=assigned_of(role, case.assigned, case.epoch),
        pending_revocation=assigned_of(role, case.pending, case.epoch),
    )


def step(case: Case, role: str) -> StreamsMember:
    target = TasksTuple(**{role: numbers_of(case.target)})
    owned = None
    if case.owned is not None:
        owned = Owned(*(numbers_of(case.owned) if each == role else {} for each in ROLES))
    return reconcile(member_of(case, role), case.target_epoch, target, owned, owners_of(case))


@pytest.mark.parametrize(
    ("case", "role"), [pytest.param(case, role, id=f"{case.name}-{role}") for case in CASES for role in case.roles]
)
def test_a_member_comes_to_the_assignment_that_kafka_computes(case: Case, role: str) -> None:
    before = member_of(case, role)
    if case.after is None:
        assert step(case, role) == before
        return
    state, epoch, assigned, pending = case.after
    assert step(case, role) == replace(
        before,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=case.epoch,
        assigned=assigned_of(role, assigned, epoch),
        pending_revocation=assigned_of(role, pending, epoch),
    )


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("owned", [None, "a:3"])
def test_a_member_in_an_unknown_state_is_fenced_until_it_has_given_all_up(role: str, owned: str | None) -> None:
    case = Case("unknown", UNKNOWN, 11, "a:3 b:6", 12, "a:3 b:6", None, pending="a:2 b:5", owned=owned)
    with pytest.raises(ApiError) as caught:
        step(case, role)
    assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH
