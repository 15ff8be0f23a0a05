"""The fields of requests that name topics, groups and transactions, and those of their responses for an error.

A `Level` pairs a list of a request with the list of the response that answers it, item by item: topics, and in them
partitions. An API without one has its error in the response itself.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.protocol.api import APIS, message_type, request_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import ZERO_UUID

Selected: TypeAlias = dict[str, str | int]
"""What a part of a request is about: topic, partition, group and transactional_id, as far as it says."""
ITEM: Final = ""
"""In place of a field's name: the item of the list itself, which is a text or a number."""


@dataclass(slots=True, frozen=True)
class Level:
    """`request`, `response`: names of the lists. `item`: the class of the response's items.

    copies: fields of a response's item, each with the field of the request's item that it repeats. selects: what a
    request's item is about, each with its field. error: the field of the response's item; unused if there is an `inner`
    level. has_message: false at versions whose items cannot carry their field `error_message`, if they have one.
    `response` is empty if only the request has this level: the inner level's lists are the response's own then.
    """

    request: str
    response: str
    item: str
    copies: tuple[tuple[str, str], ...] = ()
    selects: tuple[tuple[str, str], ...] = ()
    inner: "Level | None" = None
    error: str = "error_code"
    has_message: bool = True


_NAMED: Final = (("name", "name"),)
_NAMED_OR_ID: Final = (("name", "name"), ("topic_id", "topic_id"))
_BY_INDEX: Final = (("partition_index", "partition_index"),)
_PARTITION: Final = (("partition", "partition_index"),)
_TOPIC: Final = (("topic", "name"),)
_RESOURCE: Final = (("resource_type", "resource_type"), ("resource_name", "resource_name"))
_NUMBERED: Final = (("partition_index", ITEM),)
_NUMBER: Final = (("partition", ITEM),)


def _partitions(
    item: str,
    *,
    request: str = "partitions",
    response: str = "partitions",
    copies: tuple[tuple[str, str], ...] = _BY_INDEX,
    selects: tuple[tuple[str, str], ...] = _PARTITION,
    error: str = "error_code",
) -> Level:
    return Level(request, response, item, copies, selects, error=error)


def _topics(
    item: str,
    inner: Level | None,
    *,
    request: str = "topics",
    response: str = "topics",
    copies: tuple[tuple[str, str], ...] = _NAMED,
    selects: tuple[tuple[str, str], ...] = _TOPIC,
) -> Level:
    return Level(request, response, item, copies, selects, inner)


def _shared(item: str) -> Level:
    return _topics(item, _partitions("PartitionData"), response="responses", copies=(("topic_id", "topic_id"),))


def _groups(item: str) -> Level:
    return Level("groups", "groups", item, (("group_id", "group_id"),), (("group", "group_id"),))


def _described_groups(*, has_message: bool) -> Level:
    copies, selects = (("group_id", ITEM),), (("group", ITEM),)
    return Level("groups", "groups", "DescribedGroup", copies, selects, has_message=has_message)


_GROUP_IDS: Final = Level("group_ids", "groups", "DescribedGroup", (("group_id", ITEM),), (("group", ITEM),))
_TXN_TOPICS: Final = _topics(
    "AddPartitionsToTxnTopicResult",
    _partitions(
        "AddPartitionsToTxnPartitionResult",
        response="results_by_partition",
        copies=_NUMBERED,
        selects=_NUMBER,
        error="partition_error_code",
    ),
    response="topic_results",
)

LEVELS: Final[Mapping[str, tuple[tuple[int, Level | None], ...]]] = {
    "Produce": (
        (
            0,
            _topics(
                "TopicProduceResponse",
                _partitions(
                    "PartitionProduceResponse",
                    request="partition_data",
                    response="partition_responses",
                    copies=(("index", "index"),),
                    selects=(("partition", "index"),),
                ),
                request="topic_data",
                response="responses",
                copies=_NAMED_OR_ID,
            ),
        ),
    ),
    "Fetch": (
        (
            0,
            _topics(
                "FetchableTopicResponse",
                _partitions(
                    "PartitionData", copies=(("partition_index", "partition"),), selects=(("partition", "partition"),)
                ),
                response="responses",
                copies=(("topic", "topic"), ("topic_id", "topic_id")),
                selects=(("topic", "topic"),),
            ),
        ),
    ),
    "ListOffsets": ((0, _topics("ListOffsetsTopicResponse", _partitions("ListOffsetsPartitionResponse"))),),
    "Metadata": ((0, _topics("MetadataResponseTopic", None, copies=_NAMED_OR_ID)),),
    "OffsetCommit": (
        (0, _topics("OffsetCommitResponseTopic", _partitions("OffsetCommitResponsePartition"), copies=_NAMED_OR_ID)),
    ),
    "OffsetFetch": (
        (8, _groups("OffsetFetchResponseGroup")),
        (2, None),
        (
            0,  # names topics, but is about its group: at other versions none can be chosen
            _topics(
                "OffsetFetchResponseTopic",
                _partitions("OffsetFetchResponsePartition", request="partition_indexes", copies=_NUMBERED, selects=()),
                selects=(),
            ),
        ),
    ),
    "TxnOffsetCommit": (
        (
            0,
            _topics(
                "TxnOffsetCommitResponseTopic", _partitions("TxnOffsetCommitResponsePartition"), copies=_NAMED_OR_ID
            ),
        ),
    ),
    "AddPartitionsToTxn": (
        (
            4,
            Level(
                "transactions",
                "results_by_transaction",
                "AddPartitionsToTxnResult",
                (("transactional_id", "transactional_id"),),
                (("transactional_id", "transactional_id"),),
                _TXN_TOPICS,
            ),
        ),
        (
            0,
            _topics(
                "AddPartitionsToTxnTopicResult",
                _TXN_TOPICS.inner,
                request="v3_and_below_topics",
                response="results_by_topic_v3_and_below",
            ),
        ),
    ),
    "FindCoordinator": (
        (4, Level("coordinator_keys", "coordinators", "Coordinator", (("key", ITEM),), (("coordinator", ITEM),))),
    ),
    "OffsetForLeaderEpoch": (
        (
            0,
            _topics(
                "OffsetForLeaderTopicResult",
                _partitions(
                    "EpochEndOffset", copies=(("partition", "partition"),), selects=(("partition", "partition"),)
                ),
                copies=(("topic", "topic"),),
                selects=(("topic", "topic"),),
            ),
        ),
    ),
    "DeleteRecords": ((0, _topics("DeleteRecordsTopicResult", _partitions("DeleteRecordsPartitionResult"))),),
    "CreateTopics": ((0, _topics("CreatableTopicResult", None)),),
    "DeleteTopics": (
        (6, _topics("DeletableTopicResult", None, response="responses", copies=_NAMED_OR_ID)),
        (
            0,
            Level("topic_names", "responses", "DeletableTopicResult", (("name", ITEM),), (("topic", ITEM),)),
        ),
    ),
    "CreatePartitions": ((0, _topics("CreatePartitionsTopicResult", None, response="results")),),
    "DescribeTopicPartitions": ((0, _topics("DescribeTopicPartitionsResponseTopic", None)),),
    "AlterPartitionReassignments": (
        (0, _topics("ReassignableTopicResponse", _partitions("ReassignablePartitionResponse"), response="responses")),
    ),
    "OffsetDelete": ((0, _topics("OffsetDeleteResponseTopic", _partitions("OffsetDeleteResponsePartition"))),),
    "DescribeGroups": ((6, _described_groups(has_message=True)), (0, _described_groups(has_message=False))),
    "DeleteGroups": (
        (0, Level("groups_names", "results", "DeletableGroupResult", (("group_id", ITEM),), (("group", ITEM),))),
    ),
    "ConsumerGroupDescribe": ((0, _GROUP_IDS),),
    "ShareGroupDescribe": ((0, _GROUP_IDS),),
    "StreamsGroupDescribe": ((0, _GROUP_IDS),),
    "DescribeShareGroupOffsets": ((0, _groups("DescribeShareGroupOffsetsResponseGroup")),),
    "DescribeConfigs": ((0, Level("resources", "results", "DescribeConfigsResult", _RESOURCE)),),
    "AlterConfigs": ((0, Level("resources", "responses", "AlterConfigsResourceResponse", _RESOURCE)),),
    "IncrementalAlterConfigs": ((0, Level("resources", "responses", "AlterConfigsResourceResponse", _RESOURCE)),),
    "DescribeTransactions": (
        (
            0,
            Level(
                "transactional_ids",
                "transaction_states",
                "TransactionState",
                (("transactional_id", ITEM),),
                (("transactional_id", ITEM),),
            ),
        ),
    ),
    "DescribeProducers": (
        (
            0,
            _topics(
                "TopicResponse",
                _partitions("PartitionResponse", request="partition_indexes", copies=_NUMBERED, selects=_NUMBER),
            ),
        ),
    ),
    "ShareFetch": ((0, _shared("ShareFetchableTopicResponse")),),
    "ShareAcknowledge": ((0, _shared("ShareAcknowledgeTopicResponse")),),
    "CreateAcls": ((0, Level("creations", "results", "AclCreationResult")),),
    "DeleteAcls": ((0, Level("filters", "filter_results", "DeleteAclsFilterResult")),),
    "AlterReplicaLogDirs": (
        (
            0,
            Level(
                "dirs",
                "",
                "",
                inner=_topics(
                    "AlterReplicaLogDirTopicResult",
                    _partitions("AlterReplicaLogDirPartitionResult", copies=_NUMBERED, selects=_NUMBER),
                    response="results",
                    copies=(("topic_name", "name"),),
                ),
            ),
        ),
    ),
    "WriteTxnMarkers": (
        (
            0,
            Level(
                "markers",
                "markers",
                "WritableTxnMarkerResult",
                (("producer_id", "producer_id"),),
                inner=_topics(
                    "WritableTxnMarkerTopicResult",
                    _partitions(
                        "WritableTxnMarkerPartitionResult",
                        request="partition_indexes",
                        copies=_NUMBERED,
                        selects=_NUMBER,
                    ),
                ),
            ),
        ),
    ),
}
"""By API: from which version on, the newest first. None: the response has one error then."""


TopicOf: TypeAlias = Callable[[bytes], str | None]
"""The name of the topic with this id; None if there is none."""
REQUEST_FIELDS: Final = {
    "group": ("group_id",),
    "transactional_id": ("transactional_id", "v3_and_below_transactional_id"),
}
COORDINATOR_KINDS: Final = {0: "group", 1: "transactional_id"}
"""What FindCoordinator asks about, by its key_type."""


def level_of(api: str, version: int) -> Level | None:
    """Return the outermost level of an API at a version; None if its error is that of the response."""
    return next((level for since, level in LEVELS.get(api, ()) if version >= since), None)


def selectors_of(api_key: int) -> set[str]:
    """Return which of topic, partition, group and transactional_id a request of the API may name."""
    fields = request_type(api_key).field_names()
    found: set[str] = set()
    for _, level in LEVELS.get(APIS[api_key].name, ()):
        at: Level | None = level
        while at is not None:
            found.update(selector for selector, _ in at.selects)
            at = at.inner
    if "coordinator" in found:
        found = {"group", "transactional_id"}
    if "group_id" in fields:
        found.add("group")
    if any(name.endswith("transactional_id") for name in fields):
        found.add("transactional_id")
    return found


def is_between_nodes(api_key: int) -> bool:
    """Return whether no client sends the API: the quorum's, and the share coordinator's."""
    api = APIS[api_key]
    return api.listeners == ("controller",) or "ShareGroupState" in api.name


def subject_of(request: Any) -> Selected:
    """Return the group and the transactional id that a request as a whole is about."""
    fields = request.field_names()
    found: Selected = {}
    for selector, names in REQUEST_FIELDS.items():
        for name in names:
            if name in fields and getattr(request, name):
                found[selector] = getattr(request, name)
    if "key_type" in fields and request.key:
        found[COORDINATOR_KINDS.get(request.key_type, "share")] = request.key
    return found


def parts_of(api: str, version: int, request: Any, topic_of: TopicOf) -> Iterator[Selected]:
    """Yield the selectable fields of each part of a request: of each partition, topic and so on that it names."""
    level = level_of(api, version)
    subject = subject_of(request)
    if level is None:
        yield subject
        return
    yield from _parts(level, request, subject, topic_of)


def _parts(level: Level, holder: Any, about: Selected, topic_of: TopicOf) -> Iterator[Selected]:
    for item in getattr(holder, level.request) or ():
        selected = _selected(level, holder, item, about, topic_of)
        if level.inner is None:
            yield selected
        else:
            yield from _parts(level.inner, item, selected, topic_of)


def take_parts(
    level: Level, request: Any, is_hit: Callable[[Selected], bool], error: ErrorCode, topic_of: TopicOf
) -> list[Any]:
    """Remove the parts that are hit from a request; return the items of its response that give them the error.

    Whether something is left, the caller sees in the request's list.
    """
    response_name = type(request).__name__.removesuffix("Request") + "Response"
    module = import_module(message_type(response_name).__module__)
    return _take(level, request, _Taking(is_hit, error, topic_of, module), subject_of(request))


@dataclass(slots=True, frozen=True)
class _Taking:
    is_hit: Callable[[Selected], bool]
    error: ErrorCode
    topic_of: TopicOf
    module: Any


def _take(level: Level, holder: Any, taking: _Taking, about: Selected) -> list[Any]:
    kept, errors = [], []
    for item in getattr(holder, level.request) or ():
        selected = _selected(level, holder, item, about, taking.topic_of)
        if level.inner is None:
            if taking.is_hit(selected):
                response = _response_of(level, item, taking.module)
                _put_error(level, response, taking.error)
                errors.append(response)
            else:
                kept.append(item)
            continue
        inner_errors = _take(level.inner, item, taking, selected)
        if not level.response:
            errors += inner_errors
        elif inner_errors:
            response = _response_of(level, item, taking.module)
            setattr(response, level.inner.response, inner_errors)
            errors.append(response)
        if getattr(item, level.inner.request):
            kept.append(item)
    setattr(holder, level.request, kept)
    return errors


def _put_error(level: Level, item: Any, error: ErrorCode) -> None:
    if level.error == "error_code" and level.has_message:
        put_error(item, error)
    else:
        setattr(item, level.error, int(error))


def put_error(holder: Any, error: ErrorCode) -> None:
    """Set the error of a response or of an item, and its message: kafka-python takes some without one for a success."""
    holder.error_code = int(error)
    if "error_message" in holder.field_names():
        holder.error_message = error.message


def put_errors(level: Level, holder: Any, errors: list[Any]) -> None:
    """Put items with errors into a response, in the place of what it has about the same."""
    if not level.response:
        assert level.inner is not None
        put_errors(level.inner, holder, errors)
        return
    found = getattr(holder, level.response) or []
    for error in errors:
        same = next((each for each in found if _key(level, each) == _key(level, error)), None) if level.copies else None
        if same is None:
            found.append(error)
        elif level.inner is None:
            found[found.index(same)] = error
        else:
            put_errors(level.inner, same, getattr(error, level.inner.response))
    setattr(holder, level.response, found)


def _key(level: Level, item: Any) -> list[Any]:
    return [getattr(item, name) for name, _ in level.copies]


def _response_of(level: Level, item: Any, module: Any) -> Any:
    """Return a new item of the response about an item of the request."""
    response = getattr(module, level.item)()
    for to, of in level.copies:
        setattr(response, to, item if of == ITEM else getattr(item, of))
    if "records" in response.field_names():
        response.records = b""
    return response


def _selected(level: Level, holder: Any, item: Any, about: Selected, topic_of: TopicOf) -> Selected:
    selected = dict(about)
    for selector, field in level.selects:
        value = item if field == ITEM else getattr(item, field, None)
        if selector == "coordinator":
            selector = COORDINATOR_KINDS.get(holder.key_type, "share")
        if selector == "topic" and not value:
            topic_id = getattr(item, "topic_id", ZERO_UUID)
            value = topic_of(topic_id) if topic_id != ZERO_UUID else None
        if value is not None:
            selected[selector] = value
    return selected
