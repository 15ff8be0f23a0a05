"""A streams group whose coordinator moves after it told a member to revoke tasks, before the member has done so."""

from typing import Any, Final

from kafkapy.protocol.error_code import ErrorCode
from tests.support.client_requests import until
from tests.support.offsets import commit, committed, find_coordinator
from tests.support.streams_members import LEAVES, LEAVES_FOR_A_WHILE, StreamsMember, describe, reading
from tests.support.wire import WireClient

TOPIC: Final = "joined"
GROUP: Final = "joined"
PARTITIONS: Final = 6
PATIENCE_MS: Final = 600_000
"""The members' rebalance timeout: none is removed because it has not revoked a task yet."""
HANDOVER_KEYS: Final = {
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.max.session.timeout.ms": "300000",
    "group.streams.session.timeout.ms": "300000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""Of a broker: members stay while it is slow to start, and changes are assigned at once."""


class Handover:
    """Three members: one runs, one waits for a task of the first, and the third keeps its tasks without a heartbeat.

    `version`: of the heartbeats. With 1 the third is a static member that is away; 4.3.1 has no such members.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._topology = reading(TOPIC)
        self._members: dict[str, StreamsMember] = {}
        self._committed = 0
        self._turn = 0
        self._third = "third"

    def go_on(self, client: WireClient) -> None:
        """Finish what the other broker began, and begin another move of tasks."""
        self._turn += 1
        find_coordinator(client, GROUP)
        for member in self._members.values():
            member.client = client
        if self._members:
            self._finish(client)
        else:
            self._start(client)
        self._begin(client)

    def _start(self, client: WireClient) -> None:
        self._join(client, "runs")
        self._join(client, self._third, **self._instance())
        self._until_assigned({"runs": 3, self._third: 3})
        self._go_away()

    def _begin(self, client: WireClient) -> None:
        """Let a member join, and the one that runs keep the task that it is told to give up."""
        runs = self._members["runs"]
        self._committed += 1
        fields = {"member_id": "runs", "generation_id_or_member_epoch": runs.epoch}
        assert commit(client, GROUP, TOPIC, self._committed, **fields) == [0]
        self._kept = runs.tasks
        waits = self._join(client, "waits")
        until(lambda: self._beat(runs, **self._kept).error_code == 0 and len(partitions(runs)) == 2)
        self._beat(waits)
        assert not partitions(waits)
        self._epochs = (describe(client, GROUP, self._version).group_epoch, runs.epoch, waits.epoch)

    def _finish(self, client: WireClient) -> None:
        runs, waits = self._members["runs"], self._members["waits"]
        described = describe(client, GROUP, self._version)
        assert (described.group_epoch, runs.epoch, waits.epoch) == self._epochs
        assert sorted(each.member_id for each in described.members) == sorted(self._members)
        self._beat(waits)
        assert not partitions(waits), "the other has not given it up"
        assert self._beat(runs, member_epoch=runs.epoch - 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        told = self._beat(runs, **self._kept)
        assert told.error_code == 0
        assert len(partitions(runs)) == 2, "the response does not give it back"
        self._until_assigned({"runs": 2, "waits": 1})
        assert describe(client, GROUP, self._version).group_epoch == self._epochs[0], "nothing is rebalanced"
        assert committed(client, GROUP, TOPIC) == [self._committed]
        if self._version:
            self._return(client)
        self._until_assigned({"runs": 2, "waits": 2, self._third: 2})
        self._beat(self._members.pop("waits"), member_epoch=LEAVES)
        self._until_assigned({"runs": 3, self._third: 3})
        self._go_away()

    def _instance(self) -> dict[str, str]:
        return {"instance_id": "i", "process_id": "process of i"} if self._version else {}

    def _go_away(self) -> None:
        if self._version:
            response = self._beat(self._members[self._third], member_epoch=LEAVES_FOR_A_WHILE)
            assert (response.error_code, response.member_epoch) == (0, LEAVES_FOR_A_WHILE)

    def _return(self, client: WireClient) -> None:
        """Let the static member come back, with another id, to the tasks that it had."""
        gone, self._third = self._members.pop(self._third), f"third-{self._turn}"
        again = self._join(client, self._third, **self._instance())
        assert again.epoch == self._epochs[0]
        assert set(partitions(again)) < set(partitions(gone)), "less the one that it has to give up"

    def _join(self, client: WireClient, member_id: str, **fields: Any) -> StreamsMember:
        member = StreamsMember(client, GROUP, member_id, instance_id=fields.get("instance_id"))
        response = member.join(self._topology, version=self._version, rebalance_timeout_ms=PATIENCE_MS, **fields)
        assert response.error_code == 0, response
        self._members[member_id] = member
        return member

    def _beat(self, member: StreamsMember, **fields: Any) -> Any:
        return member.heartbeat(self._version, **fields)

    def _until_assigned(self, counts: dict[str, int]) -> None:
        """Let these members do as they are told until each has so many tasks, and no two the same."""

        def is_so() -> bool:
            assert all(self._beat(self._members[name]).error_code == 0 for name in counts)
            held = [each for name in counts for each in partitions(self._members[name])]
            assert len(held) == len(set(held))
            return all(len(partitions(self._members[name])) == count for name, count in counts.items())

        until(is_so)


def partitions(member: StreamsMember) -> list[int]:
    return sorted(member.active.get("0", ()))
