"""Requests about transactions, played to Apache Kafka: what it answers, and what it writes to `__transaction_state`.

A scenario is a transactional id brought into a state, and then what may be asked of it there: each request in several
versions, with the current producer id and epoch, older and newer ones, and those of somebody else. Refusals leave the
id as it was, so the next request follows; what changes it is asked once more, and a fresh id is brought into the state.

Scenarios are lists of steps, as JSON:
    {"api": [key, version], "request": hex, "response": hex, "records": [[key, value], ...]}
    {"do": "reload" | "time out" | "expire", "records": [...]}
The records are those that Kafka wrote because of the step, up to CompleteX. Ids, partitions and epochs that a state
cannot be brought about with in reasonable time (epoch 32766 takes as many requests) are written to the topic as records
and loaded: "crafted".

At transaction.version 0 nothing is asked that a client of version 2 would ask: Kafka's log has no room for the client's
version then, so that AddPartitionsToTxn 4 and EndTxn 5 fail there, and the id answers CONCURRENT_TRANSACTIONS for good.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.record.batches import batches
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.records import TransactionRecord, decode_record, encode_record
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition
from tests.support.batches import build_batch
from tests.support.client_requests import create_topic, fetch, produce_request, until
from tests.support.wire import WireClient

STATE_TOPIC: Final = "__transaction_state"
HELD: Final = TopicPartition("held", 0)
"""Takes no marker of a producer once `hold` was called: a transaction with it stays decided and does not complete."""
LATER_COORDINATOR_EPOCH: Final = 1000
TOPICS: Final = ("AaAa", "AaBB", "BBAa", "BBBB", *(f"t{number}" for number in range(16)))
"""The first four have one hash code."""
PARTITION_COUNT: Final = 5
TIMEOUT_MS: Final = 60_000
SHORT_TIMEOUT_MS: Final = 1500
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Who may produce to internal topics."""
OFFSETS_PARTITION_COUNT: Final = 3
CRAFTED_PER_RECIPE: Final = 60
PRODUCER_ID: Final = 500_000
"""The first producer id of crafted records, beyond those that the broker gives."""

PROPERTIES: Final = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITION_COUNT),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "transactional.id.expiration.ms": "3600000",
}

Step = dict[str, Any]
Producer = tuple[int, int]
Build = Callable[[str, Producer], Any]
Question = tuple[Build, int, str]
"""A request's builder, its version, and which producer it is of."""


class Play:
    """A broker, and the scenarios that it has played so far."""

    def __init__(self, bootstrap: str, transaction_version: int) -> None:
        self.transaction_version = transaction_version
        self.scenarios: list[dict[str, Any]] = []
        self.crafted: dict[str, list[tuple[str, list[TransactionRecord]]]] = {}
        """By recipe: ids that no scenario has used yet, each with its records."""
        self._known: dict[str, TransactionMetadata] = {}
        self._raw: dict[str, list[tuple[bytes, bytes | None]]] = {}
        """What was written of each id since it was looked at last."""
        self._offset = 0
        self._count = 0
        self._next_crafted_id = PRODUCER_ID
        self.client = WireClient(bootstrap, timeout_s=60)

    @property
    def has_bumping_clients(self) -> bool:
        """Whether clients of transaction version 2 are understood."""
        return self.transaction_version > 0

    def reconnect(self, bootstrap: str) -> None:
        self.client.close()
        self.client = WireClient(bootstrap, timeout_s=60)

    def prepare(self) -> None:
        """Make the topics, this one's coordinator among them."""
        for topic in TOPICS:
            create_topic(self.client, topic, PARTITION_COUNT)
        create_topic(self.client, HELD.topic)
        self.find_coordinator()

    def find_coordinator(self) -> None:
        def is_there() -> bool:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
            if self.client.call(request, 6).coordinators[0].error_code:
                return False
            (state,) = self.client.call(DescribeTransactionsRequest(["nobody"]), 0).transaction_states
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return False
            return bool(self.client.call(InitProducerIdRequest(None), 5).error_code == 0)  # producer ids are at hand

        until(is_there)

    # -- scenarios ------------------------------------------------------------------------------------------------

    def begin(self, name: str, crafted: Iterable[TransactionRecord] = ()) -> str:
        """Begin a scenario; return a transactional id of its own."""
        raw = [encode_record(record, 0)[1:3] for record in crafted]
        self.scenarios.append(
            {
                "name": name,
                "transaction_version": self.transaction_version,
                "crafted": [_hex(each) for each in raw],
                "steps": [],
            }
        )
        self._count += 1
        return f"{name}-{self._count}"

    def take_crafted(self, recipe: str, name: str = "") -> str:
        """Begin a scenario with an id of crafted records, loaded by the broker at its start."""
        transactional_id, records = self.crafted[recipe].pop()
        self.begin(name or recipe, records)
        self._catch_up()
        self._note("reload", transactional_id)
        return transactional_id

    def send_request(self, request: Any, version: int, transactional_id: str = "") -> bool:
        """Send a request, and note the response and the id's records; return whether there are any."""
        response = self.client.call(request, version)
        response.throttle_time_ms = 0
        records = self._written(transactional_id)
        step = {
            "api": [request.API_KEY, version],
            "request": request.encode(version).hex(),
            "response": response.encode(version).hex(),
        }
        self.scenarios[-1]["steps"].append(step | ({"records": records} if records else {}))
        return bool(records)

    def _note(self, what: str, transactional_id: str) -> None:
        self.scenarios[-1]["steps"].append({"do": what, "records": self._written(transactional_id)})

    def _written(self, transactional_id: str) -> list[Any]:
        """Return what has been written of the id, waiting until a decided transaction completes, if it can."""
        until(lambda: self._is_at_rest(transactional_id))
        return [_hex(each) for each in self._raw.pop(transactional_id, [])]

    def _is_at_rest(self, transactional_id: str) -> bool:
        """Whether the broker has come to rest: what it describes is what was read last, and complete if it can be."""
        self._catch_up()
        metadata = self._known.get(transactional_id)
        if metadata is None or transactional_id not in self._raw:
            return True
        (state,) = self.client.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
        if metadata.state.is_prepared:
            return [topic.topic for topic in state.topics] == [HELD.topic]
        return bool(state.transaction_state == metadata.state.shown_name)

    def _catch_up(self) -> None:
        """Read what has been written since."""
        while True:
            records = bytes(fetch(self.client, STATE_TOPIC, self._offset).records or b"")
            whole = list(batches(records))
            for batch in whole:
                for record in batch.records():
                    if record.offset >= self._offset:
                        self._take(bytes(record.key or b""), None if record.value is None else bytes(record.value))
                self._offset = max(self._offset, batch.next_offset)
            if not whole:
                return

    def _take(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        self._raw.setdefault(record.transactional_id, []).append((key, value))
        if record.metadata is None:
            self._known.pop(record.transactional_id, None)
        else:
            self._known[record.transactional_id] = record.metadata

    # -- what brings an id into a state ---------------------------------------------------------------------------

    def producer(self, transactional_id: str) -> Producer:
        known = self._known[transactional_id]
        return known.producer_id, known.producer_epoch

    def init(self, transactional_id: str, producer: Producer = (-1, -1), version: int = 5, **fields: Any) -> None:
        self.send_request(init(transactional_id, producer, **fields), version, transactional_id)

    def add(self, transactional_id: str, version: int, *partitions: TopicPartition) -> None:
        version = version if self.has_bumping_clients else min(version, 3)
        request = add_partitions(transactional_id, self.producer(transactional_id), version, partitions or SOME)
        self.send_request(request, version, transactional_id)

    def end(self, transactional_id: str, version: int, *, is_commit: bool) -> None:
        version = version if self.has_bumping_clients else min(version, 4)
        request = end(transactional_id, self.producer(transactional_id), is_commit=is_commit)
        self.send_request(request, version, transactional_id)

    def describe(self, transactional_id: str) -> None:
        self.send_request(DescribeTransactionsRequest([transactional_id]), 0, transactional_id)

    def show(self, version: int = 2, **fields: Any) -> None:
        self.send_request(ListTransactionsRequest(**fields), version)

    def wait_for(self, what: str, transactional_id: str, state: TransactionState | None) -> None:
        """Wait until the broker has done something by itself."""

        def is_there() -> bool:
            self._catch_up()
            known = self._known.get(transactional_id)
            return known is None if state is None else known is not None and known.state is state

        until(is_there)
        self._note(what, transactional_id)

    def hold(self, transactional_id: str) -> None:
        """Write a marker of a later coordinator to HELD, which then refuses those of this one."""
        topic = WritableTxnMarkerTopic(HELD.topic, partition_indexes=[HELD.partition])
        producer_id, producer_epoch = self.producer(transactional_id)
        marker = WritableTxnMarker(
            producer_id,
            producer_epoch=producer_epoch,
            topics=[topic],
            coordinator_epoch=LATER_COORDINATOR_EPOCH,
        )
        (response,) = self.client.call(WriteTxnMarkersRequest([marker]), 1).markers
        assert response.topics[0].partitions[0].error_code == 0, response

    # -- crafted records ------------------------------------------------------------------------------------------

    def craft(self, recipe: str, count: int = CRAFTED_PER_RECIPE, **fields: Any) -> None:
        """Write records of ids that are to be loaded at the next start."""
        for _ in range(count):
            self._count += 1
            transactional_id = f"{recipe}-{self._count}"
            metadata = self._crafted_metadata(**fields)
            value_version = 1 if self.transaction_version else 0
            self.craft_records(recipe, [TransactionRecord(transactional_id, metadata, value_version)])

    def _crafted_metadata(self, **fields: Any) -> TransactionMetadata:
        now_ms = int(time.time() * 1000)
        self._next_crafted_id += 10
        values = {
            "producer_epoch": 32766,
            "timeout_ms": 900_000,
            "last_update_ms": now_ms,
            "previous_producer_id": self._next_crafted_id,
            "start_ms": -1 if fields["state"] is TransactionState.EMPTY else now_ms,
        }
        return TransactionMetadata(self._next_crafted_id, **(values | fields))

    def craft_records(self, recipe: str, records: list[TransactionRecord]) -> None:
        self.craft_raw([encode_record(record, 0)[1:3] for record in records])
        self.crafted.setdefault(recipe, []).append((records[0].transactional_id, records))

    def craft_raw(self, raw: list[tuple[bytes | None, bytes | None]]) -> None:
        now_ms = int(time.time() * 1000)
        batch = build_batch([(now_ms, key, value, ()) for key, value in raw])
        response = self.client.call(produce_request(STATE_TOPIC, batch), 9, client_id=ADMIN_CLIENT_ID)
        assert response.responses[0].partition_responses[0].error_code == 0, response

    def forget_crafted(self) -> None:
        """What was read so far are the crafted records themselves, not what the broker made of them."""
        self._catch_up()
        self._raw.clear()


def _hex(record: tuple[bytes | None, bytes | None]) -> list[str | None]:
    return [None if each is None else each.hex() for each in record]


SOME: Final = (TopicPartition("t0", 0), TopicPartition("t0", 1), TopicPartition("t1", 2))
MORE: Final = (TopicPartition("t1", 2), TopicPartition("AaAa", 3), TopicPartition("BBBB", 0))


# -- requests -------------------------------------------------------------------------------------------------------


def init(transactional_id: str, producer: Producer = (-1, -1), timeout_ms: int = TIMEOUT_MS) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id, transaction_timeout_ms=timeout_ms, producer_id=producer[0], producer_epoch=producer[1]
    )


def end(transactional_id: str, producer: Producer, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit)


def add_partitions(
    transactional_id: str,
    producer: Producer,
    version: int,
    partitions: Iterable[TopicPartition],
    *,
    is_verification: bool = False,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    requested = [AddPartitionsToTxnTopic(topic, partitions=partition_ids) for topic, partition_ids in topics.items()]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=requested,
        )
    return AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=is_verification,
                topics=requested,
            )
        ]
    )


def _build_init(transactional_id: str, producer: Producer) -> Any:
    return init(transactional_id, producer)


def _build_commit(transactional_id: str, producer: Producer) -> Any:
    return end(transactional_id, producer, is_commit=True)


def _build_abort(transactional_id: str, producer: Producer) -> Any:
    return end(transactional_id, producer, is_commit=False)


def _build_add(version: int) -> Build:
    return lambda transactional_id, producer: add_partitions(transactional_id, producer, version, MORE)


def _build_repeated_add(version: int) -> Build:
    return lambda transactional_id, producer: add_partitions(transactional_id, producer, version, SOME[:2])


def _build_verify(version: int) -> Build:
    return lambda transactional_id, producer: add_partitions(
        transactional_id, producer, version, SOME[:1] + MORE, is_verification=True
    )


def _build_offsets(transactional_id: str, producer: Producer) -> Any:
    return AddOffsetsToTxnRequest(
        transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id="readers"
    )


WHOSE: Final = ("other", "ahead", "far behind", "behind", "before", "before, older", "current")
"""Which producer a request is of; the last one is what changes something."""


def questions(play: Play, *, is_whole: bool) -> Iterator[Question]:
    """Yield what is asked in every state; not whole: each request in its newest version of each kind."""
    newest_end, newest_add = (5, 5) if play.has_bumping_clients else (4, 3)
    for whose in (*WHOSE, "none"):
        for version in (0, 2, 3, 4, 5) if is_whole else (3, 5):
            if version > 2 or whose == "none":  # before, a request names no producer
                yield _build_init, version, whose
    for whose in WHOSE:
        for version in (0, 1, 2, 3, 4, 5) if is_whole else sorted({1, 4, newest_end}):
            yield _build_commit, version, whose
            yield _build_abort, version, whose
        for version in (0, 1, 2, 3, 4, 5) if is_whole else sorted({1, 3, newest_add}):
            yield _build_add(version), version, whose
        yield _build_repeated_add(newest_add), newest_add, whose
        for version in (4, 5):
            yield _build_verify(version), version, whose
        for version in (0, 1, 2, 3, 4) if is_whole else (1, 4):
            yield _build_offsets, version, whose


def producer_of(play: Play, transactional_id: str, whose: str) -> Producer | None:
    """Return the producer id and epoch, None if there are none such."""
    if whose == "none":
        return -1, -1
    known = play._known.get(transactional_id)
    if known is None:
        return (7, 3) if whose == "other" else None
    if whose.startswith("before"):
        is_renewed = known.previous_producer_id not in (-1, known.producer_id)
        return (known.previous_producer_id, 32766 if whose == "before" else 32765) if is_renewed else None
    producer_id, epoch = known.producer_id, known.producer_epoch
    found = {
        "other": (producer_id + 7919, epoch),
        "ahead": (producer_id, epoch + 1),
        "behind": (producer_id, epoch - 1),
        "far behind": (producer_id, epoch - 2),
        "current": (producer_id, epoch),
    }[whose]
    return found if found[1] <= 32767 else None


# -- states ---------------------------------------------------------------------------------------------------------


Recipe = Callable[[Play, str], None]


def initialized(play: Play, transactional_id: str) -> None:
    """Epoch 2, so that there are older ones."""
    for _ in range(3):
        play.init(transactional_id)


def reinitialized(play: Play, transactional_id: str) -> None:
    initialized(play, transactional_id)
    play.init(transactional_id, play.producer(transactional_id))


def ongoing(version: int) -> Recipe:
    def bring(play: Play, transactional_id: str) -> None:
        initialized(play, transactional_id)
        play.add(transactional_id, version)

    return bring


def ended(add_version: int, end_version: int, *, is_commit: bool) -> Recipe:
    def bring(play: Play, transactional_id: str) -> None:
        ongoing(add_version)(play, transactional_id)
        play.end(transactional_id, end_version, is_commit=is_commit)

    return bring


def ended_after_reinit(play: Play, transactional_id: str) -> None:
    reinitialized(play, transactional_id)
    play.add(transactional_id, 3)
    play.end(transactional_id, 4, is_commit=True)


def aborted_without_transaction(play: Play, transactional_id: str) -> None:
    initialized(play, transactional_id)
    play.end(transactional_id, 5, is_commit=False)


def fenced(play: Play, transactional_id: str) -> None:
    ongoing(5)(play, transactional_id)
    play.init(transactional_id)


def held(version: int, *, is_commit: bool) -> Recipe:
    def bring(play: Play, transactional_id: str) -> None:
        initialized(play, transactional_id)
        play.hold(transactional_id)
        play.add(transactional_id, min(version, 3) if version < 5 else 5, *SOME, HELD)
        play.end(transactional_id, version, is_commit=is_commit)
        play.describe(transactional_id)

    return bring


def held_by_fence(play: Play, transactional_id: str) -> None:
    initialized(play, transactional_id)
    play.hold(transactional_id)
    play.add(transactional_id, 5, *SOME, HELD)
    play.init(transactional_id)
    play.describe(transactional_id)


def nothing(play: Play, transactional_id: str) -> None:
    """An id that nobody knows."""


RECIPES: Final[dict[str, Recipe]] = {
    "absent": nothing,
    "empty": initialized,
    "reinitialized": reinitialized,
    "ongoing of v3": ongoing(3),
    "ongoing of v5": ongoing(5),
    "committed by v4": ended(3, 4, is_commit=True),
    "aborted by v4": ended(3, 4, is_commit=False),
    "committed by v5": ended(5, 5, is_commit=True),
    "aborted by v5": ended(5, 5, is_commit=False),
    "committed by v4 after a bump": ended_after_reinit,
    "aborted without a transaction": aborted_without_transaction,
    "fenced": fenced,
}
HELD_RECIPES: Final[dict[str, Recipe]] = {
    "committing by v4": held(4, is_commit=True),
    "aborting by v4": held(4, is_commit=False),
    "committing by v5": held(5, is_commit=True),
    "aborting by v5": held(5, is_commit=False),
    "fencing": held_by_fence,
}


def play_recipe(play: Play, bring: Callable[[], str], *, is_whole: bool) -> None:
    """Send every request about ids in one state. `bring()` begins a scenario and returns its id, in that state."""
    transactional_id = bring()
    for build, version, whose in questions(play, is_whole=is_whole):
        producer = producer_of(play, transactional_id, whose)
        if producer is None:
            continue
        request = build(transactional_id, producer)
        if play.send_request(request, version, transactional_id):
            play.send_request(request, version, transactional_id)
            play.describe(transactional_id)
            transactional_id = bring()


def play_recipes(play: Play) -> None:
    for name, recipe in RECIPES.items():
        if name.endswith("v5") and not play.has_bumping_clients:
            continue

        def bring(name: str = name, recipe: Recipe = recipe) -> str:
            transactional_id = play.begin(name)
            recipe(play, transactional_id)
            return transactional_id

        play_recipe(play, bring, is_whole=play.transaction_version == 2)


def play_held(play: Play) -> None:
    for name, recipe in HELD_RECIPES.items():
        if name.endswith("v5") and not play.has_bumping_clients:
            continue
        transactional_id = play.begin(name)
        recipe(play, transactional_id)
        for build, version, whose in questions(play, is_whole=False):
            producer = producer_of(play, transactional_id, whose)
            if producer is not None:
                play.send_request(build(transactional_id, producer), version, transactional_id)


# -- scenarios of their own -----------------------------------------------------------------------------------------


def play_bad_requests(play: Play) -> None:
    transactional_id = play.begin("bad requests")
    play.init("")
    for producer in ((5, -1), (-1, 5), (-5, 3), (5, -5)):
        play.send_request(init(transactional_id, producer), 5, transactional_id)
    for timeout_ms in (0, -1, 900_001, 0x7FFFFFFF):
        play.send_request(init(transactional_id, timeout_ms=timeout_ms), 5, transactional_id)
    for version in (1, 4):
        play.send_request(end("", (7, 3), is_commit=True), version)
    for version in (1, 3):
        play.send_request(add_partitions("", (7, 3), version, SOME), version)
    play.send_request(add_partitions("", (7, 3), 5, SOME, is_verification=True), 5)
    play.send_request(AddOffsetsToTxnRequest("", producer_id=7, producer_epoch=3, group_id="readers"), 4)
    play.describe("")
    play.init(transactional_id, timeout_ms=900_000)
    play.add(transactional_id, 5)


def play_nothing_added(play: Play) -> None:
    """A transaction without a partition."""
    for version in (3, 5) if play.has_bumping_clients else (3,):
        transactional_id = play.begin("nothing added")
        play.init(transactional_id)
        producer = play.producer(transactional_id)
        play.send_request(add_partitions(transactional_id, producer, version, ()), version, transactional_id)
        play.send_request(add_partitions(transactional_id, producer, version, ()), version, transactional_id)
        play.describe(transactional_id)
        play.end(transactional_id, 4 if version == 3 else 5, is_commit=True)


def play_time_outs(play: Play) -> None:
    for version in (3, 5) if play.has_bumping_clients else (3,):
        for is_late_commit in (True, False):
            transactional_id = play.begin("timed out")
            play.init(transactional_id, timeout_ms=SHORT_TIMEOUT_MS)
            old = play.producer(transactional_id)
            play.add(transactional_id, version)
            play.wait_for("time out", transactional_id, TransactionState.COMPLETE_ABORT)
            for end_version in (5, 4) if play.has_bumping_clients else (4,):
                play.send_request(end(transactional_id, old, is_commit=is_late_commit), end_version, transactional_id)
            play.send_request(init(transactional_id, old), 5, transactional_id)
            play.send_request(init(transactional_id, old), 5, transactional_id)


def play_both_kinds(play: Play) -> None:
    """Clients of both kinds, one after the other under one id."""
    transactional_id = play.begin("both kinds")
    play.init(transactional_id)
    for add_version, end_version, is_commit in ((5, 5, True), (3, 4, True), (0, 1, False), (5, 5, False), (3, 3, True)):
        play.add(transactional_id, add_version)
        play.end(transactional_id, end_version, is_commit=is_commit)
        play.describe(transactional_id)
    play.add(transactional_id, 3)
    play.end(transactional_id, 5, is_commit=True)
    play.add(transactional_id, 5)
    play.end(transactional_id, 4, is_commit=True)


def play_orders(play: Play) -> None:
    """Partitions in numbers: the order in which they are written is that of Java's hash sets."""
    every = [TopicPartition(topic, partition) for partition in range(PARTITION_COUNT) for topic in TOPICS]
    for sizes in ((1, 1, 1, 9, 1, 12, 25, 50), (100,), (13,), (12, 1), (48, 1, 1), (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)):
        transactional_id = play.begin("many partitions")
        play.init(transactional_id)
        start = 0
        for size in sizes:
            play.add(transactional_id, 5, *(every[7 * number % 100] for number in range(start, start + size)))
            start += size
        play.describe(transactional_id)
        play.end(transactional_id, 5, is_commit=True)


def play_lists(play: Play) -> None:
    transactional_id = play.begin("lists")
    empty, ongoing_id, committed = (f"list-{state}{transactional_id}" for state in ("a", "b", "c"))
    for each in (empty, ongoing_id, committed):
        play.init(each)
    play.add(ongoing_id, 5)
    play.add(committed, 5)
    play.end(committed, 5, is_commit=True)
    pattern = "list-.*"
    play.show(transactional_id_pattern=pattern)
    play.show(transactional_id_pattern="list-")
    play.show(transactional_id_pattern="list-[ab].*")
    play.show(transactional_id_pattern="(")
    play.show(transactional_id_pattern=pattern, state_filters=["Ongoing"])
    play.show(transactional_id_pattern=pattern, state_filters=["Ongoing", "Nonsense"])
    play.show(transactional_id_pattern=pattern, state_filters=["Nonsense"])
    play.show(transactional_id_pattern=pattern, state_filters=["Dead", "PrepareEpochFence", "ongoing"])
    play.show(transactional_id_pattern=pattern, producer_id_filters=[play.producer(committed)[0]])
    play.show(transactional_id_pattern=pattern, duration_filter=0)
    play.show(transactional_id_pattern=pattern, duration_filter=10**12)
    play.show(0, state_filters=["CompleteCommit"], producer_id_filters=[play.producer(committed)[0]])
    play.show(1, state_filters=["Ongoing"], producer_id_filters=[play.producer(ongoing_id)[0]], duration_filter=0)


CRAFTED: Final[dict[str, dict[str, Any]]] = {
    "empty at the last epoch": {"state": TransactionState.EMPTY},
    "empty before the last epoch": {"state": TransactionState.EMPTY, "producer_epoch": 32765},
    "ongoing at the last epoch": {"state": TransactionState.ONGOING, "partitions": SOME},
    "ongoing before the last epoch": {
        "state": TransactionState.ONGOING,
        "partitions": SOME,
        "producer_epoch": 32765,
    },
    "committed at the last epoch": {"state": TransactionState.COMPLETE_COMMIT},
    "aborted at the last epoch": {"state": TransactionState.COMPLETE_ABORT},
    "aborted above the last epoch": {"state": TransactionState.COMPLETE_ABORT, "producer_epoch": 32767},
    "ongoing above the last epoch": {
        "state": TransactionState.ONGOING,
        "partitions": SOME,
        "producer_epoch": 32767,
    },
}
"""Ids about to run out of epochs: whatever is asked of them."""
CRAFTED_ENDS: Final[dict[str, dict[str, Any]]] = {
    "loaded while committing": {"state": TransactionState.PREPARE_COMMIT, "partitions": SOME},
    "loaded while aborting": {"state": TransactionState.PREPARE_ABORT, "partitions": SOME, "producer_epoch": 8},
    "loaded while committing nothing": {"state": TransactionState.PREPARE_COMMIT, "producer_epoch": 8},
    "loaded with a topic that is gone": {
        "state": TransactionState.PREPARE_COMMIT,
        "partitions": (TopicPartition("gone", 0),),
        "producer_epoch": 8,
    },
}
CRAFTED_BUMPED: Final[dict[str, dict[str, Any]]] = {
    "loaded while committing with a new id": {
        "state": TransactionState.PREPARE_COMMIT,
        "partitions": SOME,
        "producer_epoch": 32767,
        "next_producer_id": 400_000,
        "client_transaction_version": 2,
    },
    "loaded while aborting with a new id": {
        "state": TransactionState.PREPARE_ABORT,
        "partitions": SOME,
        "producer_epoch": 32767,
        "next_producer_id": 400_001,
        "client_transaction_version": 2,
    },
}
"""Only in values of version 1."""
CRAFTED_TIME_OUTS: Final[dict[str, dict[str, Any]]] = {
    f"timed out at epoch {producer_epoch}": {
        "state": TransactionState.ONGOING,
        "partitions": SOME,
        "producer_epoch": producer_epoch,
        "timeout_ms": 1000,
        "start_ms": 1_700_000_000_000,
    }
    for producer_epoch in (8, 32765, 32766, 32767)
}
EXPIRED_MS: Final = 1_700_000_000_000
CRAFTED_EXPIRED: Final[dict[str, dict[str, Any]]] = {
    f"expired {state.name}": {"state": state, "last_update_ms": EXPIRED_MS, "producer_epoch": 3}
    for state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
}
CRAFTED_MANY: Final[dict[str, dict[str, Any]]] = {
    f"loaded with {count} partitions": {
        "state": TransactionState.ONGOING,
        "partitions": tuple(
            TopicPartition(TOPICS[7 * number % 20], (number + number // 20) % 5) for number in range(count)
        ),
        "producer_epoch": 8,
    }
    for count in (11, 12, 13, 23, 24, 25, 48)
}
"""Around the numbers at which Java's hash sets grow."""
UNKNOWN_VERSIONS: Final = "unknown versions"


def craft_all(play: Play) -> None:
    """Write what the broker is to load at its next start."""
    for name, fields in CRAFTED.items():
        play.craft(name, **fields)
    once = (
        CRAFTED_ENDS
        | CRAFTED_MANY
        | CRAFTED_TIME_OUTS
        | CRAFTED_EXPIRED
        | (CRAFTED_BUMPED if play.transaction_version else {})
    )
    for name, fields in once.items():
        play.craft(name, 1, **fields)
    metadata = play._crafted_metadata(state=TransactionState.EMPTY, producer_epoch=3)
    record = TransactionRecord(UNKNOWN_VERSIONS, metadata, 1)
    play.craft_records(UNKNOWN_VERSIONS, [record])
    _, key, value, _ = encode_record(record, 0)
    assert key is not None
    assert value is not None
    play.craft_raw([(key, b"\0\x02" + value[2:]), (b"\0\x01" + key[2:], value), (b"\0\x01" + key[2:], None)])
    play.forget_crafted()


def play_crafted(play: Play) -> None:
    """After the start: what became of the crafted ids, and what may be asked of them."""
    for name in CRAFTED_ENDS | (CRAFTED_BUMPED if play.transaction_version else {}):
        transactional_id = play.take_crafted(name)
        play.describe(transactional_id)
        for version in (4, 5):
            play.end(transactional_id, version, is_commit="committing" in name)
    for name in CRAFTED_MANY:
        transactional_id = play.take_crafted(name)
        play.describe(transactional_id)
        play.end(transactional_id, 5, is_commit=True)
    for name in CRAFTED_TIME_OUTS:
        transactional_id, records = play.crafted[name].pop()
        play.begin(name, records)
        play.wait_for("time out", transactional_id, TransactionState.COMPLETE_ABORT)
        old = (records[0].metadata.producer_id, records[0].metadata.producer_epoch) if records[0].metadata else (0, 0)
        play.send_request(
            end(transactional_id, old, is_commit=False), 5 if play.has_bumping_clients else 4, transactional_id
        )
        play.send_request(init(transactional_id, old), 5, transactional_id)
        play.send_request(init(transactional_id, old), 5, transactional_id)
        play.init(transactional_id)
    for name in CRAFTED_EXPIRED:
        transactional_id, records = play.crafted[name].pop()
        play.begin(name, records)
        play.wait_for("expire", transactional_id, None)
        play.describe(transactional_id)
        play.init(transactional_id)
    transactional_id = play.take_crafted(UNKNOWN_VERSIONS)
    play.describe(transactional_id)
    for name in CRAFTED:
        play_recipe(play, lambda name=name: play.take_crafted(name), is_whole=False)  # type: ignore[misc]


def play_renewed(play: Play) -> None:
    """Ids whose producer id was renewed because its epochs were used up, by EndTxn and by InitProducerId."""

    def renewed_by_end(is_commit: bool) -> str:
        transactional_id = play.take_crafted("ongoing at the last epoch", "renewed by EndTxn")
        play.end(transactional_id, 5, is_commit=is_commit)
        return transactional_id

    def renewed_by_init(is_named: bool) -> str:
        transactional_id = play.take_crafted("committed at the last epoch", "renewed by InitProducerId")
        play.init(transactional_id, play.producer(transactional_id) if is_named else (-1, -1))
        return transactional_id

    for is_yes in (True, False):
        play_recipe(play, lambda is_yes=is_yes: renewed_by_end(is_yes), is_whole=False)  # type: ignore[misc]
        play_recipe(play, lambda is_yes=is_yes: renewed_by_init(is_yes), is_whole=False)  # type: ignore[misc]
