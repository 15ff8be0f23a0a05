"""The shared state of the core's parts: this node's settings, log, voters and role, and its exchange with others."""

from kafkapy.raft.config import RaftConfig
from kafkapy.raft.connections import Connections, Outbox
from kafkapy.raft.current_role import CurrentRole
from kafkapy.raft.log_view import LogView
from kafkapy.raft.replica import Replica
from kafkapy.raft.voters import VoterHistory


class LocalNode:
    """Owns the objects that more than one part of the core uses. A part handles requests and responses with them."""

    __slots__ = ("config", "connections", "current", "out", "replica")

    def __init__(self, config: RaftConfig, log: LogView, voters: VoterHistory, seed: int) -> None:
        self.config = config
        self.out = Outbox()
        self.connections = Connections(config, self.out)
        self.replica = Replica(config, log, voters, self.out)
        self.current = CurrentRole(config, self.replica, self.connections, self.out, seed)
