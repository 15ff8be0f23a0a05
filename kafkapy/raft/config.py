"""The settings of a RaftCore: this replica's voter entry and the timeouts."""

from kafkapy.dataclass import dataclass
from kafkapy.raft.voters import Voter

FOREVER_MS = 1 << 62
"""A deadline that never comes."""

CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns after 1.5 fetch timeouts without fetches from a majority: followers give up after one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """This replica's voter entry, and Kafka's controller.quorum.* timeouts."""

    local: Voter
    can_become_voter: bool = True
    joins_by_itself: bool = False
    """Whether a controller that is an observer asks to become a voter (controller.quorum.auto.join.enable)."""
    bootstrap_ids: tuple[int, ...] = ()
    """Nodes to ask while the leader is unknown: node ids of voters, or negative ids of bootstrap servers."""
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 25
    max_batch_bytes: int = 8 << 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20

    @property
    def check_quorum_timeout_ms(self) -> int:
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
