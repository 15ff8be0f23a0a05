"""For tests of services that use Kafka, typed and kept stable: brokers, clusters, faults, fixtures' types.

Public: the names in `__all__` keep their arguments and meaning within a major version. All else of kafkapy is internal.
docs/howto/pytest.md has the fixtures, which pytest finds by itself.
"""

from kafkapy.embedded.broker import Broker, NewKafkaBroker
from kafkapy.embedded.cluster import Cluster
from kafkapy.embedded.faults.actions import ActingFaults
from kafkapy.embedded.faults.rules import Fault, FaultError, FaultNeverHit, Faults, Hit
from kafkapy.embedded.network import ClientNetwork, ClusterClientNetwork, NodeNetwork
from kafkapy.embedded.observed.decoding import Record
from kafkapy.embedded.observed.described import Member
from kafkapy.embedded.observed.groups import Group, Groups
from kafkapy.embedded.observed.requests import Request, Requests
from kafkapy.embedded.observed.topics import Topic, Topics
from kafkapy.embedded.observed.waiting import NotObserved, ObservationError
from kafkapy.embedded.options import BrokerOptions, ClusterOptions
from kafkapy.embedded.snapshots import Snapshot, SnapshotError
from kafkapy.embedded.virtual_time import BrokerClock, ClockError
from kafkapy.server.cluster.plan import ClusterError
from kafkapy.types import TopicPartition

__all__ = [
    "ActingFaults",
    "Broker",
    "BrokerClock",
    "BrokerOptions",
    "ClientNetwork",
    "ClockError",
    "Cluster",
    "ClusterClientNetwork",
    "ClusterError",
    "ClusterOptions",
    "Fault",
    "FaultError",
    "FaultNeverHit",
    "Faults",
    "Group",
    "Groups",
    "Hit",
    "Member",
    "NewKafkaBroker",
    "NodeNetwork",
    "NotObserved",
    "ObservationError",
    "Record",
    "Request",
    "Requests",
    "Snapshot",
    "SnapshotError",
    "Topic",
    "TopicPartition",
    "Topics",
]
