"""A topology as configured for the cluster's topics: tasks of each subtopology, and its internal topics.

Made by configure_topology() of topic_configuration.py.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from kafkapy.dataclass import dataclass
from kafkapy.group.streams.assignor_spec import SubtopologySpec


class StatusCode(IntEnum):
    """The statuses in a StreamsGroupHeartbeat response, beside its error code."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True)
class TopicConfigurationProblem:
    """Why the topology cannot run with the existing topics."""

    status: StatusCode
    message: str


@dataclass(frozen=True, slots=True)
class ConfiguredInternalTopic:
    """The required form of a repartition or changelog topic. `replication_factor` None: the broker's default."""

    name: str
    number_of_partitions: int
    replication_factor: int | None = None
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    number_of_tasks: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)
    repartition_sink_topics: frozenset[str] = frozenset()
    state_changelog_topics: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)

    @property
    def spec(self) -> SubtopologySpec:
        return SubtopologySpec(self.number_of_tasks, bool(self.state_changelog_topics))


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """`subtopologies` by ascending id, None if the topics do not allow to configure them.

    `internal_topics_to_be_created`: by name. If there are any, the problem is MISSING_INTERNAL_TOPICS.
    """

    topology_epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    internal_topics_to_be_created: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)
    problem: TopicConfigurationProblem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def specs(self) -> dict[str, SubtopologySpec]:
        """Return the subtopologies for an assignor; none as long as they are not configured."""
        return {each: subtopology.spec for each, subtopology in (self.subtopologies or {}).items()}
