"""What a shard returns: records to append, the answer to the request at hand, and answers to requests that waited.

Nothing of it leaves before the records (and all before them) are committed.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from kafkapy.dataclass import dataclass
from kafkapy.group.records import CoordinatorRecord


@dataclass(slots=True)
class Reply:
    """The answer to an earlier request that had to wait, by the token it came with. An ApiError is raised there."""

    token: int
    response: Any


@dataclass(slots=True)
class GroupDecision:
    """`response` None says: the answer comes later, as a Reply under the request's token (in this decision, even).

    on_failed: called where the records could not be appended, with the error code that clients get: takes soft state
    back, returns the replies that say so. Without it, `replies` and the request itself get that code. It must not
    rely on anything having changed: nothing was replayed.

    made: the group that the records make, where it is there by now: with soft state that no record has. Replay of its
    records puts it into the shard's map.

    is_atomic: all records or none, in one batch, which max.message.bytes bounds. Tombstones need not be.
    """

    response: Any = None
    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    on_failed: Callable[[int], list[Reply]] | None = None
    made: Any = None
    is_atomic: bool = True
    effects: ClassVar[tuple[()]] = ()
    """Groups have none."""


@dataclass(slots=True, frozen=True)
class Client:
    """Who asks. `client_host` is what Kafka keeps and shows: "/127.0.0.1"."""

    client_id: str
    client_host: str
