"""Decisions about the offsets of a share group, which are part of the states of its share partitions.

To alter offsets is to initialise the states again; to delete them, or the group, is to delete the states. The group has
no members then. The states are changed by the share coordinator: what is decided here comes before that, or after it.
Error messages are Kafka's. Source: KIP-932, Apache Kafka 4.4.0.
"""

from collections.abc import Iterable, Mapping

from kafkapy.group.share.decision import DeleteStates, InitializeStates, ShareDecision
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.records import states_record
from kafkapy.group.share.states import NO_STATES, GroupStates, TopicStates
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequestTopic
from kafkapy.protocol.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkapy.protocol.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafkapy.types import Uuid

UNKNOWN_TOPIC_MESSAGE = "This server does not host this topic-partition."
NOTHING_TO_DELETE_MESSAGE = "There is no offset information to delete."


def decide_alter(
    group: ShareGroup, topics: Iterable[AlterShareGroupOffsetsRequestTopic], image: MetadataImage, wall_ms: int
) -> ShareDecision:
    """Decide AlterShareGroupOffsets: the states are to be initialised with the given offsets (`initialize`).

    The response says NONE for their partitions, in case that succeeds. Raises NON_EMPTY_GROUP.
    """
    group.check_deletion()
    response = AlterShareGroupOffsetsResponse()
    initializing: dict[Uuid, TopicStates] = {}
    start_offsets: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        known = image.topics.by_name.get(topic.topic_name)
        responded = AlterShareGroupOffsetsResponseTopic(topic.topic_name)
        response.responses.append(responded)
        offsets = {} if known is None else _known_offsets(topic, known)
        responded.partitions = [
            _altered(each.partition_index, is_known=each.partition_index in offsets) for each in topic.partitions
        ]
        if known is not None:
            responded.topic_id = known.topic_id
            before = initializing.get(known.topic_id)  # a request may name a topic twice
            partitions = frozenset(offsets) if before is None else before.partitions.union(offsets)
            initializing[known.topic_id] = TopicStates(known.name, partitions, wall_ms)
            if offsets:
                start_offsets.setdefault(known.topic_id, {}).update(offsets)
    decision = ShareDecision(response)
    assert start_offsets.keys() <= initializing.keys(), "states would be written that no record tells of"
    # recorded before the states are written: if that fails, a later heartbeat or fetch initialises them again
    if initializing:
        states = (group.log.states or NO_STATES).with_initializing(initializing)
        decision.records = [states_record(group.group_id, states, image)]
    if start_offsets:
        decision.initialize = InitializeStates(group.group_id, group.log.group_epoch, start_offsets)
    return decision


def _known_offsets(topic: AlterShareGroupOffsetsRequestTopic, known: TopicImage) -> dict[int, int]:
    """Return the offsets of partitions that exist.

    Deviation: Apache Kafka creates states for partitions below 0, too. Here they are unknown, because nobody could
    read or delete such a state.
    """
    return {
        each.partition_index: each.start_offset for each in topic.partitions if each.partition_index in known.partitions
    }


def _altered(partition: int, *, is_known: bool) -> AlterShareGroupOffsetsResponsePartition:
    if is_known:
        return AlterShareGroupOffsetsResponsePartition(partition)
    return AlterShareGroupOffsetsResponsePartition(
        partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=UNKNOWN_TOPIC_MESSAGE
    )


def decide_delete(group: ShareGroup, topic_names: Iterable[str], image: MetadataImage) -> ShareDecision:
    """Decide DeleteShareGroupOffsets: the states of these topics are to be deleted (`delete`).

    The response has the topics of which there is nothing to delete; `deleted` adds the others. Raises NON_EMPTY_GROUP.
    """
    group.check_deletion()
    response = DeleteShareGroupOffsetsResponse()
    states = group.log.states
    if states is None:
        return ShareDecision(response)
    to_delete: dict[Uuid, frozenset[int]] = {}
    for name in topic_names:
        topic = image.topics.by_name.get(name)
        if topic is None:
            response.responses.append(_not_deleted(name, UNKNOWN_TOPIC_MESSAGE))
        elif topic.topic_id in states.initialized:
            to_delete[topic.topic_id] = states.initialized[topic.topic_id].partitions
        elif topic.topic_id in states.deleting:  # a deletion that has failed is tried again
            to_delete[topic.topic_id] = frozenset(topic.partitions)
        else:
            response.responses.append(_not_deleted(name, NOTHING_TO_DELETE_MESSAGE))
    left = {topic_id: each for topic_id, each in states.initialized.items() if topic_id not in to_delete}
    after = GroupStates(states.initializing, left, states.deleting.union(to_delete))
    decision = ShareDecision(response, [states_record(group.group_id, after, image)])
    if to_delete:
        decision.delete = DeleteStates(group.group_id, to_delete)
    return decision


def _not_deleted(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )


def decide_deleted(
    group: ShareGroup, response: DeleteShareGroupOffsetsResponse, topics: Mapping[Uuid, str], image: MetadataImage
) -> ShareDecision:
    """Decide what follows once the states of these topics are deleted: the response tells so."""
    states = group.log.states
    if states is None:
        return ShareDecision(response)
    deleted = [DeleteShareGroupOffsetsResponseTopic(name, topic_id=topic_id) for topic_id, name in topics.items()]
    response.responses = [*deleted, *response.responses]
    after = GroupStates(states.initializing, states.initialized, states.deleting.difference(topics))
    return ShareDecision(response, [states_record(group.group_id, after, image)])


def decide_group_deletion(group: ShareGroup, image: MetadataImage) -> ShareDecision:
    """Decide what comes before the deletion of a group: that of all its states (`delete`). Raises NON_EMPTY_GROUP."""
    group.check_deletion()
    if group.log.states is None:
        return ShareDecision(())
    states = group.log.states.to_delete(image)
    decision = ShareDecision((), [states_record(group.group_id, GroupStates({}, {}, frozenset(states)), image)])
    if states:
        decision.delete = DeleteStates(
            group.group_id, {topic_id: topic.partitions for topic_id, topic in states.items()}
        )
    return decision
