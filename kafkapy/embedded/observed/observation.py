"""The topics, groups and requests of one broker or cluster, as tests look at them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.embedded.observed.groups import Groups
from kafkapy.embedded.observed.nodes import Nodes, NodesElsewhere, NodesHere, Sources
from kafkapy.embedded.observed.report import report
from kafkapy.embedded.observed.requests import Requests
from kafkapy.embedded.observed.topics import Topics

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Address


class Observation:
    """The values of `broker.topics`, `broker.groups` and `broker.requests`, and of those of a cluster."""

    def __init__(self, nodes: Nodes, requests: Requests, registry: Callable[[], str | None]) -> None:
        """`registry`: returns the URL of the schema registry; None if there is none."""
        self.requests = requests
        sources = Sources(nodes, lambda topic: report(nodes, requests, topic))
        self.topics = Topics(sources, registry)
        self.groups = Groups(sources)


def of_servers(
    servers: "Callable[[], Sequence[BrokerServer]]", install: Callable[[], None], registry: Callable[[], str | None]
) -> Observation:
    """Return the observation of brokers in this process. `install`: has them record requests, or not."""
    return Observation(NodesHere(servers), Requests(install), registry)


def of_processes(
    running: "Callable[[], dict[int, Address]]", requests: Requests, registry: Callable[[], str | None]
) -> Observation:
    """Return the observation of brokers that are processes, which tell of their `requests`."""
    return Observation(NodesElsewhere(running), requests, registry)
