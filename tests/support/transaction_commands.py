"""The commands of tests/texts/transactions: producers of transactional ids, and their transaction coordinator.

    coordinator [transaction.version=2]    the first command: a coordinator without transactional ids
    init A [id=x] [timeout=60000] [again]  A sends InitProducerId; again: it names the producer id and epoch it has
    add A orders-0 trades-0    A adds partitions to its transaction, opening it if need be
    verify A orders-0          a partition's leader asks whether it is in A's transaction (KIP-890)
    commit A, abort A          A sends EndTxn
    hold orders-0              the leader of this partition takes no markers from now on
    release                    all take markers, and those that were held are written
    advance 60000              milliseconds pass; the coordinator then aborts what has timed out
    fail-over                  another coordinator loads the log
    status                     the transactional ids as their coordinator has them

A response is printed with the producer id and epoch that a producer has then. Below it: the states that the coordinator
wrote to its log, and the markers that it had written. Clients are of the newest version of each API.
"""

from collections.abc import Iterable, Mapping, Sequence

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.transaction.decision import WriteMarkers
from kafkapy.transaction.records import TransactionRecord
from kafkapy.types import TopicPartition
from tests.support.texts import Command, options_of, table
from tests.support.transaction_world import TransactionWorld, X


class TextWorld(TransactionWorld):
    """A world that notes what is written, in words."""

    def __init__(self, transaction_version: int) -> None:
        self.lines: list[str] = []
        super().__init__(transaction_version)

    def append(self, record: TransactionRecord) -> None:
        super().append(record)
        metadata = record.metadata
        if metadata is None:
            self.lines.append(f"  log: {record.transactional_id} removed")
            return
        self.lines.append(f"  log: {record.transactional_id} {metadata.state.shown_name} {_producer(metadata)}")

    def write_markers(self, effect: WriteMarkers) -> None:
        standing = [each for each in effect.partitions if each not in self.held]
        if standing:
            kind = "commit" if effect.is_commit else "abort"
            self.lines.append(f"  markers: {kind} {_producer(effect)} in {_named(standing)}")
        super().write_markers(effect)

    def noted(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class Producer:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.identity = (-1, -1)
        """Producer id and epoch."""


class TransactionCommands:
    def __init__(self) -> None:
        self._world = TextWorld(2)
        self._producers: dict[str, Producer] = {}

    def commands(self) -> Mapping[str, Command]:
        return {
            "coordinator": self._coordinator,
            "init": self._init,
            "add": self._add,
            "verify": self._verify,
            "commit": lambda words: self._end(words, is_commit=True),
            "abort": lambda words: self._end(words, is_commit=False),
            "hold": self._hold,
            "release": self._release,
            "advance": self._advance,
            "fail-over": self._fail_over,
            "status": self._status,
        }

    def _coordinator(self, words: Sequence[str]) -> Iterable[str]:
        _, options = options_of(words)
        self._world = TextWorld(int(options.pop("transaction.version", 2)))
        assert not options, options
        return []

    def _init(self, words: Sequence[str]) -> Iterable[str]:
        (name, *again), options = options_of(words)
        assert again in ([], ["again"]), again
        producer = self._producers.setdefault(name, Producer(options.pop("id", X)))
        timeout_ms = int(options.pop("timeout", 60_000))
        assert not options, options
        known = producer.identity if again else (-1, -1)
        response = self._world.init(producer.transactional_id, known, timeout_ms=timeout_ms)
        code = ErrorCode(response.error_code)
        if code == ErrorCode.NONE:
            producer.identity = (response.producer_id, response.producer_epoch)
        return self._response(name, "InitProducerId", code)

    def _add(self, words: Sequence[str]) -> Iterable[str]:
        name, *partitions = words
        producer = self._producers[name]
        code = self._world.add(
            producer.identity, map(_partition, partitions), transactional_id=producer.transactional_id
        )
        return self._response(name, "AddPartitionsToTxn", code)

    def _verify(self, words: Sequence[str]) -> Iterable[str]:
        name, *partitions = words
        producer = self._producers[name]
        codes = self._world.verify(
            producer.identity, *map(_partition, partitions), transactional_id=producer.transactional_id
        )
        return [f"{partition}: {code.name}" for partition, code in zip(partitions, codes, strict=True)]

    def _end(self, words: Sequence[str], *, is_commit: bool) -> Iterable[str]:
        (name,) = words
        producer = self._producers[name]
        code, *identity = self._world.end(
            producer.identity, is_commit=is_commit, transactional_id=producer.transactional_id
        )
        if code == ErrorCode.NONE:
            producer.identity = (identity[0], identity[1])
        return self._response(name, "EndTxn", code)

    def _hold(self, words: Sequence[str]) -> Iterable[str]:
        self._world.held |= set(map(_partition, words))
        return []

    def _release(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        self._world.release()
        return self._world.noted()

    def _advance(self, words: Sequence[str]) -> Iterable[str]:
        (duration_ms,) = map(int, words)
        self._world.now_ms += duration_ms
        overdue = self._world.time_out()
        return [f"{each}: timed out" for each in overdue] + self._world.noted()

    def _fail_over(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        self._world.reload()
        return self._world.noted()

    def _status(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        rows = [
            [
                each,
                metadata.state.shown_name,
                metadata.producer_id,
                metadata.producer_epoch,
                _named(metadata.partitions),
            ]
            for each, metadata in self._world.shard.transactions.items()
        ]
        return table("transactional id  state  producer id  epoch  partitions", rows)

    def _response(self, name: str, api: str, code: ErrorCode) -> list[str]:
        has = " producer={} epoch={}".format(*self._producers[name].identity) if code == ErrorCode.NONE else ""
        return [f"{name}: {api} {code.name}{has}", *self._world.noted()]


def _producer(of: object) -> str:
    return f"producer={of.producer_id} epoch={of.producer_epoch}"  # type: ignore[attr-defined]


def _partition(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition("-")
    return TopicPartition(topic, int(partition))


def _named(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{each.topic}-{each.partition}" for each in partitions) or "-"
