"""A whole registry: state, topic, election and HTTP API; start() and stop()."""

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.dataclass import dataclass
from kafkapy.registry.cluster import Cluster
from kafkapy.registry.election import DEFAULT_GROUP, Election, Identity
from kafkapy.registry.fence import Fence
from kafkapy.registry.http.api import Api
from kafkapy.registry.http.app import App
from kafkapy.registry.model import Level
from kafkapy.registry.registry import Registry
from kafkapy.registry.schemas_topic import DEFAULT_TOPIC, SchemasTopic
from kafkapy.registry.state import RegistryState

if TYPE_CHECKING:
    from kafkapy.cli.client_security import ConnectionSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """`servers`: brokers; `identity`: where others reach this registry; `users`: of basic authentication.

    is_sole: no other registry ever writes to the topic, so that there is no writer to fence.
    """

    servers: str
    identity: Identity
    topic: str = DEFAULT_TOPIC
    group: str = DEFAULT_GROUP
    level: Level = Level.BACKWARD
    users: Mapping[str, str] | None = None
    security: "ConnectionSecurity | None" = None
    forwarding: ssl.SSLContext | None = None
    is_sole: bool = False


class RegistryNode:
    """`app` answers HTTP requests once start() has returned."""

    def __init__(self, options: RegistryOptions) -> None:
        cluster = Cluster(options.servers, options.security)
        state = RegistryState(options.level)
        self.election = Election(cluster, options.identity, options.group)
        fence = None if options.is_sole else Fence(cluster, options.group, lambda: self.election.term)
        self._topic = SchemasTopic(
            cluster, state, options.topic, may_write=lambda: self.election.may_write, fence=fence
        )
        api = Api(Registry(self._topic), lambda: (cluster.cluster_id, options.group))
        self.app = App(api, self.election, options.users, options.forwarding)

    def start(self) -> None:
        """Read all schemas, then join the group. Raises ClusterError, RegistryError."""
        self._topic.start()
        self.election.start()

    def stop(self) -> None:
        self.election.stop()
        self._topic.stop()
