"""The groups of a cluster of every type, for the command line and the console: librdkafka lists no share groups.

Versions: ListGroups 5, the first with types; 4, whose groups are all classic, of brokers that lack it (before Apache
Kafka 3.8).
"""

from collections.abc import Collection
from typing import Final

from kafkapy.cli.committed_offsets import BrokerCalls, CoordinatorError, of_each_broker
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.list_groups_response import ListGroupsResponse

SHARE: Final = "Share"
STREAMS: Final = "Streams"
TYPES: Final = ("Classic", "Consumer", SHARE, STREAMS)
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
"""The states of groups, as Apache Kafka writes them."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`type` and `state` as Apache Kafka writes them: Classic, Stable.

    `protocol`: the protocol type: consumer, connect, share, streams; empty if only offsets were committed.
    """

    type: str
    state: str
    protocol: str


def choice(text: str, names: Collection[str]) -> str:
    """Return the one of these names that the text is, ignoring case, dashes and underscores. Raises ValueError."""
    wanted = text.replace("-", "").replace("_", "").lower()
    for name in names:
        if name.lower() == wanted:
            return name
    raise ValueError(f"{quoted(text)} is none of: {', '.join(names)}")


def listed_groups(
    brokers: BrokerCalls, states: Collection[str] = (), types: Collection[str] = ()
) -> tuple[dict[str, ListedGroup], list[str]]:
    """Return the groups by id, in one of these states and of one of these types if any are given.

    With them, why some brokers did not list theirs. Raises CoordinatorError if no broker answers.
    """
    found: dict[str, ListedGroup] = {}
    responses, errors = of_each_broker(brokers, lambda node_id: _of_broker(brokers, node_id))
    reasons = [str(error) for error in errors]
    for node_id, listed in responses.items():
        if listed.error_code:
            error_code = ErrorCode(listed.error_code)
            reasons.append(f"broker {node_id}: {error_code.message} ({error_code.name})")
        for each in listed.groups:
            group = ListedGroup(each.group_type.title() or TYPES[0], each.group_state, each.protocol_type)
            if (not states or group.state in states) and (not types or group.type in types):
                found[each.group_id] = group
    return found, reasons


def _of_broker(brokers: BrokerCalls, node_id: int) -> ListGroupsResponse:
    """Return the groups that a broker coordinates. Raises CoordinatorError."""
    try:
        response: ListGroupsResponse = brokers.call(node_id, ListGroupsRequest(), 5)
    except CoordinatorError:  # it may have ended the connection because it does not know the version
        response = brokers.call(node_id, ListGroupsRequest(), 4)
    return response
