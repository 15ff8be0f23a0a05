"""Transactional clients of a simulated broker, over a network that loses answers; they outlive the broker.

A transaction is a list of steps. A step is asked again, as real clients do, until it has a response that is no "not
yet": over a new connection if the old one ended, and in the broker's next life if it died. What a client did and saw
goes into a history (tests/support/history.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulator.broker_world import KafkaClient, Machine
from tests.support.batches import build_batch
from tests.support.client_requests import READ_COMMITTED, batches_in, fetch_request, kept_batches, produce_request
from tests.support.history import NOT_ACKNOWLEDGED, End, Event, Limit, Observe, Outcome, Poll, SendOffset, Write

TOPICS = ("left", "right")
PARTITION_COUNT = 2
PARTITIONS = [(topic, number) for topic in TOPICS for number in range(PARTITION_COUNT)]
TIMEOUT_MS = 2000
RESPONSE_TIMEOUT_S = 1.0
PAUSE_S = 0.02
"""Longer than a request can be on its way.

Clients of before KIP-890 wait for so long before they do anything that a request without a response could still meet,
as nothing protects them (KAFKA-17754).
"""
NOT_YET = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


def group_of(transactional_id: str) -> str:
    return f"group-of-{transactional_id}"


class Lost(Exception):
    """No response came."""


class Stage:
    """What all clients share: the broker's life of today, the history, and the time over all lives."""

    def __init__(self) -> None:
        self.machine: Machine
        self.history: list[Event] = []
        self.generations: dict[str, tuple[Machine, int]] = {}
        """Of each classic group: the newest that a member was told of, and in which life of the broker."""

    def now(self) -> float:
        return self.wall_ms() / 1000

    def wall_ms(self) -> int:
        return self.machine.clock.wall_ms()

    def new_connection(self, random: Random, *, lost_share: float) -> "RequestSender":
        return Connection(self, random, lost_share=lost_share)


class RequestSender(Protocol):
    """Where a client's requests go."""

    async def send_request(self, request: Any, version: int) -> Any:
        """Send a request and return its response. Raises Lost."""


class Connection:
    """Is made anew when it ended, and loses some answers."""

    def __init__(self, stage: Stage, random: Random, *, lost_share: float) -> None:
        self._stage = stage
        self._random = random
        self._lost_share = lost_share
        self._client: KafkaClient | None = None
        self._machine: Machine | None = None

    async def send_request(self, request: Any, version: int) -> Any:
        """Send a request and return its response. Raises Lost."""
        try:
            client = self._connected()
            await client.send(request, version)
            if self._random.random() < self._lost_share:
                await asyncio.sleep(self._random.uniform(0, 0.01))
                raise EOFError
            return await asyncio.wait_for(client.receive(), RESPONSE_TIMEOUT_S)
        except (EOFError, OSError, TimeoutError):
            self._drop()
            raise Lost from None

    def _connected(self) -> KafkaClient:
        if self._client is None or self._machine is not self._stage.machine:
            self._client, self._machine = self._stage.machine.connect(), self._stage.machine
        return self._client

    def _drop(self) -> None:
        if self._client is not None and self._machine is self._stage.machine:
            self._client.link.channel.close()
        self._client = None


@dataclass
class Transaction:
    """One under way: what is still to be asked, the next one first."""

    name: str
    number: int
    is_commit: bool
    steps: list[tuple[str, Any]]
    """("add" | "send", record), ("add offsets" | "commit offset", None), ("pause", seconds) and ("end", None)."""
    member_id: str
    member_epoch: int
    """Of the group's member when it began: the group may have moved on since."""
    requested_at: float | None = None
    """When its end was asked for first."""
    may_be_decided: bool = False
    """That request was sent, and has no response."""
    sent: list[tuple[tuple[str, int, str], float]] = field(default_factory=list)
    """The record that has no response yet, and when it was sent."""


class Membership(Protocol):
    """For whom offsets are committed; members are in transaction_members.py."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    async def is_in(self) -> bool: ...

    def is_behind(self, epoch: int) -> bool: ...

    def refused(self, code: int) -> None: ...


class NoMembership:
    """The group has no members."""

    member_id, epoch = "", -1

    async def is_in(self) -> bool:
        return True

    def is_behind(self, epoch: int) -> bool:
        return False

    def refused(self, code: int) -> None:
        return


LOST_SHARE = 0.03
"""Of requests and responses."""


class TransactionClient:
    """A producer of one kind; several may share a transactional id, and fence each other."""

    def __init__(
        self,
        stage: Stage,
        transactional_id: str,
        *,
        instance: int,
        is_v2: bool,
        numbers: "list[int]",
        random: Random,
        membership: Membership | None = None,
    ) -> None:
        """numbers: the next number of a transaction of the id, shared by its clients."""
        self.membership = membership or NoMembership()
        self.transactional_id = transactional_id
        self.name = f"{transactional_id}.{instance}"
        self.is_v2 = is_v2
        self.producer_id = self.epoch = -1
        self.committed_count = 0
        self.on_new_producer: Callable[[TransactionClient], Any] | None = None
        self._stage = stage
        self._random = random
        self._numbers = numbers
        self._connection = stage.new_connection(random, lost_share=LOST_SHARE)
        self._sequences: dict[tuple[str, int], int] = {}
        self._transaction: Transaction | None = None
        self._is_ready = False
        self._has_unknown_sequence = False

    async def work(self) -> None:
        """Run transactions until the broker's life ends."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Do the next thing; one that has no response stays the next."""
        try:
            if self._transaction is not None:
                await self._go_on(self._transaction)
            elif not self._is_ready or self._random.random() < 0.04:
                await self._begin_anew()
            elif await self.membership.is_in():
                self._transaction = self._new_transaction()
                await asyncio.sleep(self._random.uniform(0, 0.1))
            else:
                await asyncio.sleep(PAUSE_S)
        except Lost:
            await self._see_to_lost_response()

    async def _see_to_lost_response(self) -> None:
        """Ask again; or abort at once, while the record that was sent may still be on its way."""
        transaction = self._transaction
        if transaction is not None and transaction.sent and self._random.random() < 0.4:
            transaction.is_commit = False
            transaction.steps = [("end", None)]
            self._has_unknown_sequence = not self.is_v2
        elif not self.is_v2:
            await asyncio.sleep(PAUSE_S)

    async def finish_one(self) -> None:
        """End what is under way, then run one transaction that is committed."""
        goal = self.committed_count + 1
        while self.committed_count < goal:
            if self._transaction is None and self._is_ready and await self.membership.is_in():
                self._transaction = self._new_transaction(is_sure=True)
            await self.step()

    # -- a transaction ------------------------------------------------------------------------------------------------

    def _new_transaction(self, *, is_sure: bool = False) -> Transaction:
        number = self._numbers[0]
        self._numbers[0] += 1
        name = f"{self.name}/{number}"
        steps: list[tuple[str, Any]] = []
        for place in range(self._random.randrange(1, 4)):
            record = (*self._random.choice(PARTITIONS), f"{name}/{place}")
            steps += [("send", record)] if self.is_v2 else [("add", record), ("send", record)]
        steps += [("commit offset", None)] if self.is_v2 else [("add offsets", None), ("commit offset", None)]
        if self._random.random() < 0.02 and not is_sure:
            steps.append(("pause", 1.5 * TIMEOUT_MS / 1000))
        steps.append(("end", None))
        is_commit = is_sure or self._random.random() < 0.7
        return Transaction(name, number, is_commit, steps, self.membership.member_id, self.membership.epoch)

    async def _go_on(self, transaction: Transaction) -> None:
        kind, detail = transaction.steps[0]
        if kind == "pause":
            await asyncio.sleep(detail)
            transaction.steps.pop(0)
            return
        code = await self._perform(transaction, kind, detail)
        if code in NOT_YET:
            await asyncio.sleep(PAUSE_S)
        elif kind == "end":
            self._end(transaction, code)
        elif code != ErrorCode.NONE:
            self._give_up(transaction)
        else:
            transaction.steps.pop(0)

    async def _perform(self, transaction: Transaction, kind: str, record: Any) -> int:
        if kind == "send":
            if self._random.random() < 0.3 or self.membership.epoch != transaction.member_epoch:
                await self.membership.is_in()  # as the consumer's poll does: the group moves on amid the transaction
            return await self._send(transaction, record)
        if kind == "end":
            return await self._send_end(transaction)
        if kind == "add":
            return await self._add(record)
        group = group_of(self.transactional_id)
        if kind == "add offsets":
            request = AddOffsetsToTxnRequest(
                self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            return int((await self._connection.send_request(request, 0)).error_code)
        return await self._commit_offset(group, transaction)

    async def _add(self, record: tuple[str, int, str]) -> int:
        topic, partition, _ = record
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, partitions=[partition])],
        )
        response = await self._connection.send_request(request, 0)
        return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def _send(self, transaction: Transaction, record: tuple[str, int, str]) -> int:
        topic, partition, value = record
        if not transaction.sent:
            transaction.sent.append((record, self._stage.now()))
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            [(self._stage.wall_ms(), None, value.encode(), ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(topic, batch, partition=partition)
        request.transactional_id = self.transactional_id
        response = await self._connection.send_request(request, 12 if self.is_v2 else 10)
        (result,) = response.responses[0].partition_responses
        if result.error_code == ErrorCode.NONE:
            self._sequences[topic, partition] = sequence + 1
            self._stage.history.append(self._write_of(transaction, result.base_offset))
            transaction.sent.clear()
        return int(result.error_code)

    def _write_of(self, transaction: Transaction, offset: int) -> Write:
        ((topic, partition, value), sent_at) = transaction.sent[0]
        return Write(self.name, transaction.name, f"{topic}-{partition}", value, offset, sent_at, self._stage.now())

    async def _commit_offset(self, group: str, transaction: Transaction) -> int:
        requested = TxnOffsetCommitRequestPartition(0, committed_offset=transaction.number, committed_metadata="")
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=transaction.member_epoch,
            member_id=transaction.member_id,
            topics=[TxnOffsetCommitRequestTopic(TOPICS[0], partitions=[requested])],
        )
        sent = SendOffset(transaction.name, group, transaction.number)
        if sent not in self._stage.history[-50:]:
            self._stage.history.append(sent)
        is_behind = self.membership.is_behind(transaction.member_epoch)
        response = await self._connection.send_request(request, 5 if self.is_v2 else 3)
        code = int(response.topics[0].partitions[0].error_code)
        assert not (is_behind and code == ErrorCode.NONE), f"{transaction} is of a generation that is over"
        self.membership.refused(code)
        return code

    async def _send_end(self, transaction: Transaction) -> int:
        if transaction.requested_at is None:
            transaction.requested_at = self._stage.now()
        request = EndTxnRequest(
            self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=transaction.is_commit,
        )
        was_sent_before, transaction.may_be_decided = transaction.may_be_decided, True
        response = await self._connection.send_request(request, 5 if self.is_v2 else 1)
        transaction.may_be_decided = was_sent_before
        if response.error_code == ErrorCode.NONE and self.is_v2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        return int(response.error_code)

    def _end(self, transaction: Transaction, code: int) -> None:
        outcome = Outcome.COMMITTED if transaction.is_commit else Outcome.ABORTED
        if code != ErrorCode.NONE:
            is_unsure = transaction.is_commit and transaction.may_be_decided
            outcome = Outcome.UNKNOWN if is_unsure else Outcome.ABORTED
            self._is_ready = False
        if self._has_unknown_sequence:
            self._is_ready = False  # the record may be there: its sequence number is not to be used again
        self.committed_count += outcome is Outcome.COMMITTED
        self._stage.history += self.untold(outcome)
        self._transaction = None

    def _give_up(self, transaction: Transaction) -> None:
        """A step was refused: the next InitProducerId aborts the transaction."""
        transaction.is_commit = False
        self._stage.history += self.untold(Outcome.ABORTED)
        self._transaction = None
        self._is_ready = False

    def untold(self, outcome: Outcome | None = None) -> list[Event]:
        """Return the events that the transaction under way adds to the history, if it is over now."""
        transaction = self._transaction
        if transaction is None:
            return []
        if outcome is None:
            is_requested = transaction.is_commit and transaction.requested_at is not None
            outcome = Outcome.UNKNOWN if is_requested else Outcome.ABORTED
        now = self._stage.now()
        requested_at = now if transaction.requested_at is None else transaction.requested_at
        pending: list[Event] = [self._write_of(transaction, NOT_ACKNOWLEDGED)] if transaction.sent else []
        return [*pending, End(transaction.name, outcome, requested_at, now)]

    # -- InitProducerId -----------------------------------------------------------------------------------------------

    async def _begin_anew(self) -> None:
        """As a client that starts; or (KIP-360) as one that goes on, which says who it is."""
        await asyncio.sleep(self._random.uniform(0, 0.15))  # who shares the transactional id gets something done
        known = {}
        if self.is_v2 and self.producer_id >= 0 and self._random.random() < 0.5:
            known = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        request = InitProducerIdRequest(self.transactional_id, transaction_timeout_ms=TIMEOUT_MS, **known)
        response = await self._connection.send_request(request, 5 if self.is_v2 else 1)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
            self._has_unknown_sequence = False
            self._is_ready = True
            if self.on_new_producer is not None:
                await self.on_new_producer(self)
        elif response.error_code not in NOT_YET:
            assert known, f"{self.name}: InitProducerId is refused: {response}"
            self.producer_id = self.epoch = -1
            self._is_ready = False
        await asyncio.sleep(PAUSE_S)


class TransactionReader:
    """Reads all partitions along, in all lives; notes their limits, and the committed offsets of some groups."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        isolation_level: int,
        random: Random,
        transactional_ids: Sequence[str] = (),
    ) -> None:
        self._transactional_ids = transactional_ids
        self._stage = stage
        self._name = name
        self._isolation_level = isolation_level
        self._connection = stage.new_connection(random, lost_share=0.0)
        self._positions = dict.fromkeys(PARTITIONS, 0)

    async def work(self) -> None:
        while True:
            await self.read_all()
            await asyncio.sleep(0.1)

    async def read_all(self) -> None:
        """Read on in each partition, as far as there is a response, and look at the groups."""
        for partition in PARTITIONS:
            with suppress(Lost):
                await self.read(*partition)
        for transactional_id in self._transactional_ids:
            with suppress(Lost):
                await self._look_at_group(group_of(transactional_id))

    async def _look_at_group(self, group: str) -> None:
        topics = [OffsetFetchRequestTopics(TOPICS[0], partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
        invoked = self._stage.now()
        (response,) = (await self._connection.send_request(request, 9)).groups
        if response.error_code == ErrorCode.NONE:
            value = response.topics[0].partitions[0].committed_offset
            seen = Observe(Limit.COMMITTED_OFFSET, group, value, invoked, self._stage.now())
            self._stage.history += [seen] if value >= 0 else []

    async def read(self, topic: str, number: int) -> Any:
        """Read on; return the partition's response."""
        position, invoked = self._positions[topic, number], self._stage.now()
        request = fetch_request(
            topic, position, partition=number, isolation_level=self._isolation_level, max_wait_ms=0, min_bytes=0
        )
        response = (await self._connection.send_request(request, 12)).responses[0].partitions[0]
        if response.error_code == ErrorCode.NONE:
            self._note(f"{topic}-{number}", response, invoked)
            found = batches_in(response)
            self._positions[topic, number] = found[-1].next_offset if found else position
        return response

    def _note(self, partition: str, response: Any, invoked: float) -> None:
        completed = self._stage.now()
        for limit, value in (
            (Limit.HIGH_WATERMARK, response.high_watermark),
            (Limit.LAST_STABLE_OFFSET, response.last_stable_offset),
        ):
            if value >= 0:
                self._stage.history.append(Observe(limit, partition, value, invoked, completed))
        is_read_committed = self._isolation_level == READ_COMMITTED
        records = values_of(response, is_read_committed=is_read_committed)
        if records:
            poll = Poll(self._name, is_read_committed, partition, records, invoked, completed)
            self._stage.history.append(poll)


def values_of(response: Any, *, is_read_committed: bool) -> tuple[tuple[int, str], ...]:
    """Return offset and value of each record that an application gets."""
    kept = (
        kept_batches(response) if is_read_committed else [each for each in batches_in(response) if not each.is_control]
    )
    return tuple((record.offset, bytes(record.value or b"").decode()) for batch in kept for record in batch.records())
