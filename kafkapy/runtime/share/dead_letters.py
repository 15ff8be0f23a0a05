"""Copies records that a share group gave up to its dead-letter topic (KIP-1191), before they are archived.

After a failure the copy is either tried again, with Apache Kafka's back-off (2, 4, 8 and 16 s), or given up: then the
records are archived without a copy, which is logged as an error.

tried again    no leader, a leader that does not answer or is none any more; a topic that is being created
given up       no topic, and no auto-creation; a topic without errors.deadletterqueue.group.enable, or whose name lacks
               the prefix; a Produce or a CreateTopics that was refused

As in Apache Kafka, a dead letter is written twice after a crash between its append and that of its state, or if the
leader's response to the first append is lost.

Source: Apache Kafka's ShareGroupDLQStateManager.

Deviation: Apache Kafka gives up at every error of a leader but NOT_LEADER_OR_FOLLOWER. Here it is tried again after any
error that says that nothing was written (UNKNOWN_TOPIC_ID of a leader that does not know a new topic yet,
NOT_ENOUGH_REPLICAS, a full disk), because the dead letters would be lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC, MetadataImage
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.pool import Lane
from kafkapy.runtime.share.dead_letter_outbox import DeadLetterOutbox, Destination, Outcome
from kafkapy.runtime.share.originals import READ_BYTES, read_originals
from kafkapy.seams import Clock, IoPool, Random
from kafkapy.share.dead_letters import LetterRound, Originals, Source, next_round
from kafkapy.share.letter_headers import TOPIC_KEY
from kafkapy.share.pending_write import DeadLetter
from kafkapy.share.persister import SharePartitionKey
from kafkapy.types import uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.share import ShareConfig
    from kafkapy.metrics.shares import ShareCounts
    from kafkapy.replication.replica_manager import ReplicaManager

COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

MAX_TRIES: Final = 5
FIRST_BACKOFF_MS: Final = 1_000
MAX_BACKOFF_MS: Final = 30_000
JITTER_PERCENT: Final = 20
QUIET_MS: Final = 60_000
"""For so long the same reason is not logged again: a group that rejects all records would fill the log."""
MAX_FAILURES: Final = 1_000
COPIED_BYTES: Final = 32 << 20
"""Memory for all records that are being copied; each letter reserves the bytes that it may read."""

_CREATED: Final = frozenset((ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
_NO_RESPONSE: Final = frozenset((ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER))
_TRIED_AGAIN: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)

logger = logging.getLogger("kafkapy.share")

CreateTopic = Callable[[str], Awaitable[Outcome]]
"""Creates a dead-letter topic; returns the result of CreateTopics."""


class LetterParts(NamedTuple):
    """The parts of the broker that dead letters use. message_max_bytes: returns message.max.bytes."""

    image: Callable[[], MetadataImage]
    config: "Callable[[], ShareConfig]"
    message_max_bytes: Callable[[], int]
    replica_manager: "ReplicaManager"
    create_topic: CreateTopic
    outbox: DeadLetterOutbox
    listener_name: str
    clock: Clock
    random: Random
    io_pool: IoPool
    counts: "ShareCounts | None" = None


class GivenUpError(Exception):
    """The copy of a dead letter has failed for good."""


class DeadLetters:
    """Copies dead letters, many at a time."""

    def __init__(self, parts: LetterParts) -> None:
        self._parts = parts
        self._lane = Lane(max_bytes=COPIED_BYTES)
        self._creating: dict[str, asyncio.Future[Outcome]] = {}
        self._failures: dict[str, tuple[str, int, int]] = {}
        """By group: the last logged reason, its time, and how many records have had no dead letter since."""

    async def copy(self, key: SharePartitionKey, letter: DeadLetter) -> None:
        """Copy records to the group's dead-letter topic; log it if that fails. Raises nothing."""
        try:
            await self._copy(key, letter)
        except GivenUpError as error:
            self._log_failure(key, letter, str(error))
        except Exception:
            logger.exception(
                "Offsets %d to %d of %s are archived without a dead letter",
                letter.first_offset, letter.last_offset, key.coordinator_key,
            )  # fmt: skip

    def _log_failure(self, key: SharePartitionKey, letter: DeadLetter, reason: str) -> None:
        """Log records without a dead letter: at once, but the same reason of a group again only after a minute.

        Deviation: Apache Kafka writes a line for each. Here one a minute, because a group may reject thousands of
        records, and the log would grow with them.
        """
        now_ms = self._parts.clock.monotonic_ms()
        last_reason, logged_at_ms, unlogged_count = self._failures.pop(key.group_id, ("", 0, 0))
        if reason == last_reason and now_ms < logged_at_ms + QUIET_MS:
            self._failures[key.group_id] = reason, logged_at_ms, unlogged_count + letter.record_count
            return
        while len(self._failures) >= MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
        self._failures[key.group_id] = reason, now_ms, 0
        more = f"; so are {unlogged_count} records before" if unlogged_count else ""
        logger.error(
            "Offsets %d to %d of %s are archived without a dead letter: %s%s",
            letter.first_offset, letter.last_offset, key.coordinator_key, reason, more,
        )  # fmt: skip

    async def close(self) -> None:
        """Stop sending. Requests to create topics end with their time-outs."""
        await self._parts.outbox.close()

    async def _copy(self, key: SharePartitionKey, letter: DeadLetter) -> None:
        parts = self._parts
        image_topic = parts.image().topics.by_id.get(key.topic_id)
        source = Source(key.group_id, image_topic.name if image_topic else uuid_to_string(key.topic_id), key.partition)
        first_offset = letter.first_offset
        creations, tries = _Tries(parts.random), _Tries(parts.random)
        while first_offset <= letter.last_offset:
            destination = await self._destination(source, creations)
            letters, outcome = await self._try(key, source, letter, first_offset, destination)
            if outcome.error_code == ErrorCode.NONE:
                if parts.counts is not None:
                    parts.counts.letters_of(key.group_id).written_records += len(letters.records)
                first_offset = letters.last_offset + 1
                tries.reset()
                continue
            code = ErrorCode(outcome.error_code)
            reason = f"{code.name} from broker {destination.leader_id}, {destination.topic}: {outcome.message or '-'}"
            if code not in _TRIED_AGAIN or not tries.may_go_on():
                if parts.counts is not None:
                    parts.counts.letters_of(key.group_id).failed_requests += 1
                raise GivenUpError(reason)
            logger.info("Dead letters of %s are tried again: %s", key.coordinator_key, reason)
            await tries.back_off()

    async def _try(
        self, key: SharePartitionKey, source: Source, letter: DeadLetter, first_offset: int, destination: Destination
    ) -> tuple[LetterRound, Outcome]:
        """Write the records that fit into a batch; return them, and the outcome."""
        parts = self._parts
        copied_bytes = 0
        if self._own_keys(key.group_id).get(COPY_RECORD, "false").strip().lower() == "true":
            copied_bytes = min(2 * destination.max_bytes + READ_BYTES, COPIED_BYTES)
        await self._lane.enter(copied_bytes, key.group_id)
        try:
            originals = Originals({}, letter.last_offset)
            hosted = parts.replica_manager.partitions.find_by_id(key.topic_id, key.partition)
            if copied_bytes and hosted is not None:
                originals = await read_originals(
                    hosted, first_offset, letter.last_offset, max_bytes=destination.max_bytes, io_pool=parts.io_pool
                )
            letters = next_round(
                source, letter, first_offset, originals,
                now_ms=parts.clock.wall_ms(), max_bytes=destination.max_bytes,
            )  # fmt: skip
            if parts.counts is not None:
                parts.counts.letters_of(key.group_id).requests += 1
            return letters, await parts.outbox.write(destination, letters)
        finally:
            self._lane.leave(copied_bytes)

    # -- where to ------------------------------------------------------------------------------------------------

    async def _destination(self, source: Source, creations: "_Tries") -> Destination:
        """Return the partition for the dead letters; create the topic if it is missing. Raises GivenUpError."""
        while True:
            topic = self._allowed_topic(source.group_id)
            destination = self._find(topic, source.partition)
            if destination is not None:
                creations.reset()
                return destination
            reason = f"{topic} has no leader for a partition"
            if topic not in self._parts.image().topics.by_name:
                outcome = await self._create(topic)
                code = ErrorCode(outcome.error_code)
                reason = f"creating {topic}: {code.name}: {outcome.message or '-'}"
                if code not in _CREATED | _NO_RESPONSE:
                    raise GivenUpError(reason)
                if self._find(topic, source.partition) is not None:
                    continue
            if not creations.may_go_on():
                raise GivenUpError(reason)
            await creations.back_off()

    def _allowed_topic(self, group_id: str) -> str:
        """Return the name of the group's dead-letter topic. Raises GivenUpError without an allowed one."""
        image, config = self._parts.image(), self._parts.config()
        topic = self._own_keys(group_id).get(TOPIC_KEY, "").strip()
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not topic:
            raise GivenUpError(f"{TOPIC_KEY} of group {group_id} is empty")
        if topic.startswith("__"):
            raise GivenUpError(f"{TOPIC_KEY} of group {group_id} begins with __: {topic}")
        is_there = topic in image.topics.by_name
        if is_there and image.configs.of(RESOURCE_TOPIC, topic).get(GROUP_ENABLE, "false").strip().lower() != "true":
            raise GivenUpError(f"topic {topic} does not have {GROUP_ENABLE}=true")
        if not is_there and not config.errors_deadletterqueue_auto_create_topics_enable:
            raise GivenUpError(
                f"topic {topic} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if not topic.startswith(prefix):
            raise GivenUpError(f"topic {topic} does not begin with errors.deadletterqueue.topic.name.prefix={prefix}")
        return topic

    def _find(self, topic: str, source_partition: int) -> Destination | None:
        """Return the partition for dead letters of a partition with this number; None without it or its leader."""
        image = self._parts.image()
        found = image.topics.by_name.get(topic)
        if found is None or not found.partitions:
            return None
        number = source_partition % len(found.partitions)
        registration = found.partitions.get(number)
        leader = image.cluster.brokers.get(registration.leader) if registration is not None else None
        if leader is None or leader.fenced or self._parts.listener_name not in leader.endpoints:
            return None
        own = image.configs.of(RESOURCE_TOPIC, topic).get(MAX_MESSAGE_BYTES)
        max_bytes = int(own) if own is not None else self._parts.message_max_bytes()
        return Destination(topic, found.topic_id, number, leader.id, max_bytes)

    async def _create(self, topic: str) -> Outcome:
        """Create a topic. Letters that need it at the same time wait for the same request."""
        creating = self._creating.get(topic)
        if creating is None:
            creating = asyncio.ensure_future(self._parts.create_topic(topic))
            self._creating[topic] = creating
            creating.add_done_callback(lambda _: self._creating.pop(topic))
        return await asyncio.shield(creating)

    def _own_keys(self, group_id: str) -> Mapping[str, str]:
        return self._parts.image().configs.of(RESOURCE_GROUP, group_id)


class _Tries:
    """Counts consecutive failed attempts, and waits before the next."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0

    def reset(self) -> None:
        self._count = 0

    def may_go_on(self) -> bool:
        """Count a failed attempt; return whether there is another one."""
        self._count += 1
        return self._count < MAX_TRIES

    async def back_off(self) -> None:
        backoff_ms = min(FIRST_BACKOFF_MS << self._count, MAX_BACKOFF_MS)
        percent = 100 + self._random.randrange(-JITTER_PERCENT, JITTER_PERCENT + 1)
        await asyncio.sleep(backoff_ms * percent / 100_000)
