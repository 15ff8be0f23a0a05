"""The result of a group shard: records to append, the response to the request, and responses to parked requests.

Both kinds of responses are sent only after the decision's records, and all records before them, are committed.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import field
from typing import Any

from kafkapy.dataclass import dataclass
from kafkapy.group.records import CoordinatorRecord
from kafkapy.metadata.image import MetadataImage


@dataclass(slots=True)
class ParkedResponse:
    """The response to a parked request, identified by the token it came with. An ApiError as response is raised."""

    token: int
    response: Any


@dataclass(slots=True)
class GroupDecision:
    """`response` is None if the request is parked: a ParkedResponse with its token follows, perhaps in this decision.

    on_failed: called if the records could not be appended, with the error code for the clients. It undoes changes of
    soft state and returns the responses to send. Without it, `parked_responses` and the request itself get that code.
    None of the records has been replayed when it is called.

    made: the new group that the records create, with the soft state that records do not carry. Replaying the records
    puts it into the shard's map.

    due_regexes: regular expressions of the group that are to be matched with the cluster's topics, outside of the
    shard; the result is handed to ConsumerGroups.resolve_regexes.

    is_atomic: append all records or none, in one batch, which max.message.bytes bounds. Tombstones need not be atomic.

    effects: carried out once the records are committed: a LargeTargetDue of a streams group.
    """

    response: Any = None
    records: list[CoordinatorRecord] = field(default_factory=list)
    parked_responses: list[ParkedResponse] = field(default_factory=list)
    on_failed: Callable[[int], list[ParkedResponse]] | None = None
    made: Any = None
    due_regexes: Set[str] = frozenset()
    is_atomic: bool = True
    effects: Sequence[Any] = ()


@dataclass(slots=True, frozen=True)
class Client:
    """The client that sent a request. `client_host` has the form that Kafka stores and shows: "/127.0.0.1"."""

    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class GroupRequestContext:
    """The context of a request: the client, both clocks, and the cluster's metadata."""

    client: Client
    now_ms: int
    """Monotonic, for deadlines."""
    wall_ms: int
    """Wall clock, for records."""
    image: MetadataImage
    gives_way: bool = False
    """Whether long work may raise LongWorkError, to be done in turns, and the request decided again."""
