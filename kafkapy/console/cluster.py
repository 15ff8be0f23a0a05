"""The cluster as a whole: log directories, quorum, features, and the configs of topics and brokers, documented."""

from collections.abc import Sequence
from typing import Any, Final

from kafkapy.config.documentation import documentation_of
from kafkapy.config.releases import release_of
from kafkapy.config.rules import BROKER, TOPIC
from kafkapy.console.brokers import Brokers, ClusterError, Node, NoResponse, NotFound, check
from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData

METADATA_VERSION: Final = "metadata.version"
MIN_ISR: Final = "min.insync.replicas"
METADATA_TOPIC: Final = "__cluster_metadata"
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    7: "client metrics",
    8: "group",
}
"""KIP-226's sources of a config, as `kafkapy configs describe` calls them."""


@dataclass(frozen=True, slots=True)
class Config:
    """A config. `value`: None for a secret, even if the broker sends it."""

    name: str
    value: str | None
    source: str
    documentation: str
    is_read_only: bool
    is_secret: bool
    synonyms: tuple[tuple[str, str], ...]
    """The possible sources of the value, (key, source), the effective one first."""

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory; -1 bytes if the broker does not report them."""

    node_id: int
    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    partition_count: int
    used_bytes: int
    is_silent: bool = False
    """Whether its broker did not answer."""

    @property
    def used_percent(self) -> int | None:
        """The used part of the disk, by all its files; None if the broker does not report it."""
        return 100 - 100 * self.usable_bytes // self.total_bytes if self.total_bytes > 0 else None


@dataclass(frozen=True, slots=True)
class Voter:
    """A node of the quorum; `lag` in records of the metadata log."""

    node_id: int
    role: str
    end_offset: int
    lag: int
    caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    nodes: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """`level`: the finalized one, None if there is none."""

    name: str
    level: int | None
    min_supported: int
    max_supported: int

    def shown(self, level: int | None) -> str:
        """Return a level as text: those of metadata.version by their names, 33 as 4.4-IV2."""
        if level is None:
            return "–"
        release = release_of(level) if self.name == METADATA_VERSION else None
        return str(level) if release is None else f"{release} ({level})"


def configs(brokers: Brokers, kind: int, name: str) -> list[Config]:
    """Return the configs of a topic or broker, by name. Raises ClusterError, NotFound."""
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(kind, resource_name=name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    node_id = int(name) if kind == BROKER else None
    (result,) = brokers.call(node_id, request, 4).results
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotFound(f"There is no topic {name}.")
    check(result.error_code, result.error_message)
    return sorted((_config(kind, each) for each in result.configs), key=lambda each: each.name)


def min_insync_replicas(brokers: Brokers, topics: Sequence[str]) -> dict[str, int]:
    """Return min.insync.replicas of topics, without those that cannot be described."""
    if not topics:
        return {}
    resources = [DescribeConfigsResource(TOPIC, resource_name=name, configuration_keys=[MIN_ISR]) for name in topics]
    try:
        results = brokers.call(None, DescribeConfigsRequest(resources), 4).results
    except ClusterError:
        return {}
    return {result.resource_name: int(each.value) for result in results for each in result.configs if each.value}


def _config(kind: int, described: Any) -> Config:
    return Config(
        name=described.name,
        value=None if described.is_sensitive else described.value,
        source=SOURCES.get(described.config_source, "unknown"),
        documentation=described.documentation or documentation_of(kind, described.name) or "",
        is_read_only=described.read_only,
        is_secret=described.is_sensitive,
        synonyms=tuple((each.name, SOURCES.get(each.source, "unknown")) for each in described.synonyms),
    )


def log_dirs(brokers: Brokers, nodes: list[Node]) -> list[LogDir]:
    """Return the log directories of all brokers; one without a response has the reason as its error."""
    found = []
    brokers.find_silent([each.node_id for each in nodes])
    for node in nodes:
        try:
            response = brokers.call(node.node_id, DescribeLogDirsRequest(None), 4)
            check(response.error_code)
        except ClusterError as error:
            found.append(LogDir(node.node_id, "?", str(error), -1, -1, 0, 0, is_silent=isinstance(error, NoResponse)))
            continue
        found += [_log_dir(node.node_id, each) for each in response.results]
    return found


def _log_dir(node_id: int, described: Any) -> LogDir:
    sizes = [partition.partition_size for topic in described.topics for partition in topic.partitions]
    error = ErrorCode(described.error_code).name if described.error_code else None
    return LogDir(
        node_id, described.log_dir, error, described.total_bytes, described.usable_bytes, len(sizes), sum(sizes)
    )


def sizes(brokers: Brokers, topics: list[Any]) -> dict[tuple[str, int], int]:
    """Return the bytes of each partition at its leader; without those whose broker does not report it."""
    found: dict[tuple[str, int], int] = {}
    by_leader = brokers.by_leader(topics)
    brokers.find_silent(by_leader)
    for leader, by_topic in by_leader.items():
        requested = [DescribableLogDirTopic(name, partitions=numbers) for name, numbers in by_topic.items()]
        try:
            response = brokers.call(leader, DescribeLogDirsRequest(requested), 4)
        except ClusterError:
            continue
        for directory in response.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if not each.is_future_key:
                        found[topic.name, each.partition_index] = each.partition_size
    return found


def quorum(brokers: Brokers, timeout_s: float | None = None) -> Quorum:
    """Return the quorum's state. Raises ClusterError.

    timeout_s: a broker passes this on to the quorum's leader, and waits for the next one if it is gone.
    """
    request = DescribeQuorumRequest([TopicData(METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])])
    response = brokers.call(None, request, 1, timeout_s)
    check(response.error_code)
    (partition,) = response.topics[0].partitions
    check(partition.error_code)
    end = max((each.log_end_offset for each in partition.current_voters), default=0)
    nodes = [
        Voter(
            each.replica_id, role, each.log_end_offset, max(0, end - each.log_end_offset), each.last_caught_up_timestamp
        )
        for role, group in (("voter", partition.current_voters), ("observer", partition.observers))
        for each in group
    ]
    return Quorum(partition.leader_id, partition.leader_epoch, partition.high_watermark, tuple(nodes))


def features(brokers: Brokers) -> list[Feature]:
    request = ApiVersionsRequest(client_software_name="kafkapy-console", client_software_version="1")
    response = brokers.call(None, request, 3)
    check(response.error_code)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return [
        Feature(each.name, levels.get(each.name), each.min_version, each.max_version)
        for each in sorted(response.supported_features, key=lambda each: str(each.name))
    ]
