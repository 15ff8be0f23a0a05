"""Format log directories as kafka-storage.sh does: write the files that a node needs before its first start.

Every directory gets meta.properties (cluster, node and directory id) and bootstrap.checkpoint, a snapshot file with the
first records of the metadata log: the feature levels. If the quorum's voters are kept in the log (kraft.version 1), the
metadata directory also gets __cluster_metadata-0/00000000000000000000-0000000000.checkpoint with the voters.
A directory with meta.properties counts as formatted, so that file is written last. Source: KIP-631, KIP-853.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.embedded import EMBEDDED_NODE_ID, embedded_properties
from kafkapy.config.load import load
from kafkapy.config.releases import IMITATED, release_of
from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.metadata.features import KNOWN_FEATURES, MV_3_5_IV2, MV_4_0_IV1
from kafkapy.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.messages.kraft_version_record import KRaftVersionRecord
from kafkapy.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from kafkapy.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from kafkapy.raft.voters import Endpoint, VoterSet
from kafkapy.raft.voters import Voter as RecordedVoter
from kafkapy.seams import Clock, Disk, Random
from kafkapy.storage.checkpoint import META_PROPERTIES_FILE, MetaProperties, decode_meta_properties
from kafkapy.storage.errors import CheckpointError
from kafkapy.storage.file_names import BOOTSTRAP_CHECKPOINT, holds_metadata_log, partition_directories
from kafkapy.types import METADATA_PARTITION, ReplicaKey, Uuid, uuid_from_string, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
    from kafkapy.record.control import RaftControl

DIRECTORY_KEYS: Final = ("log.dirs", "log.dir", "metadata.log.dir", "cordoned.log.dirs")
METADATA_DIRECTORY: Final = str(METADATA_PARTITION)
VOTERS_CHECKPOINT: Final = "00000000000000000000-0000000000.checkpoint"
"""The snapshot at offset 0 and epoch 0.

Modules of records are imported by functions here: the manual pages are made from the
parsers when the distribution is built, without the packages that it requires."""
DEFAULT_LEVELS: Final[Mapping[str, Mapping[int, int]]] = {
    "group.version": {22: 1},
    "transaction.version": {24: 2},
    "eligible.leader.replicas.version": {26: 1},
    "share.version": {28: 1, 31: 2},
    "streams.version": {29: 1},
}
"""Each feature's default levels by the metadata.version (22 is 4.0-IV0, 31 is 4.4-IV0) from which on they hold."""


class FormatError(KafkapyError):
    """The directories cannot be formatted as requested; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class Voter:
    """An initial controller of the quorum (`id@host:port:directory` of --initial-controllers)."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid

    @classmethod
    def parse(cls, text: str) -> "Voter":
        """Parse `id@host:port:directory`. Raises FormatError."""
        try:
            node_id, address = text.strip().split("@")
            host_and_port, directory = address.rsplit(":", 1)
            host, port = host_and_port.rsplit(":", 1)
            voter = cls(int(node_id), host.strip("[]"), int(port), uuid_from_string(directory))
        except ValueError as error:
            raise FormatError(f"Expected a voter in the form id@hostname:port:directory, not {text}") from error
        if voter.node_id < 0 or not voter.host or not 0 <= voter.port <= 65535:
            raise FormatError(f"Invalid voter {text}: its node id must not be negative, its port within 0 and 65535")
        return voter


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """A request to format. `voters` is None for a quorum with static voters or one that this node joins later."""

    config: BrokerConfig
    cluster_id: str
    is_standalone: bool = False
    has_no_initial_controllers: bool = False
    voters: Sequence[Voter] | None = None
    feature_levels: Mapping[str, int] = field(default_factory=dict)
    ignore_formatted: bool = False
    scram_records: "Sequence[UserScramCredentialRecord]" = ()
    """Credentials for the bootstrap metadata."""


class _Content(NamedTuple):
    """The first content of the directories: the quorum's voters, if they are given, and the level of each feature."""

    voters: Sequence[Voter] | None
    features: Mapping[str, int]


def format_directories(
    request: FormatRequest, disk: Disk, random: Random, clock: Clock, say: Callable[[str], None]
) -> None:
    """Format a configuration's directories; `say` is called with progress messages. Raises FormatError, OSError."""
    content = _Content(_initial_voters(request, random), _feature_levels(request))
    formatted = {path: read_meta_properties(disk, path) for path in directories_of(request.config)}
    _check_formatted(request, formatted)
    if formatted[request.config.metadata_log_dir] is None:
        check_not_lost(disk, request.config, formatted)
    for path in (path for path, properties in formatted.items() if properties is None):
        _format_directory(path, request, content, disk=disk, random=random, clock=clock, say=say)
    if None not in formatted.values():
        say("All of the log directories are already formatted.")


def directories_of(config: BrokerConfig) -> list[str]:
    return sorted({*config.log_dirs, config.metadata_log_dir})


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return a directory's meta.properties, None if it is not formatted. Raises CheckpointError, OSError."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    return decode_meta_properties(disk.read_file(path), path) if disk.exists(path) else None


def check_not_lost(disk: Disk, config: BrokerConfig, formatted: Mapping[str, MetaProperties | None]) -> None:
    """Raise FormatError if a metadata directory is to be formatted that was lost, and nobody else has what it held.

    A directory that holds logs, and is not formatted, has lost its meta.properties. If this node is the only
    controller, so has the node if another directory holds logs: a newly formatted metadata directory has another id
    than the one in the quorum's log, so no controller would ever become active. Deviation: Apache Kafka's tool formats
    it. Here it is refused, because the node would then wait for a controller for ever.
    """
    for path in (path for path, meta in formatted.items() if meta is None or config.is_only_controller):
        names = partition_directories(disk, path)
        if holds_metadata_log(disk, path):
            names.append(METADATA_DIRECTORY)
        if names:
            raise FormatError(
                f"No readable {META_PROPERTIES_FILE} files found. {path} holds {len(names)} logs, such as {names[0]}. "
                f"Nothing was touched. Restore {META_PROPERTIES_FILE} (cluster.id, node.id, directory.id) from a "
                "backup; or, to start without these logs, move their directories away."
            )


# -- an embedded node ---------------------------------------------------------------------------------------------


def embedded_config(
    disk: Disk, data_dir: str, port: int, overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration of an embedded node, and warnings; a formatted directory keeps its node id.

    Raises ConfigError, FormatError, OSError.
    """
    if disk.exists(data_dir) and not disk.is_directory(data_dir):
        raise FormatError(f"{data_dir} is a file, not a directory")
    try:
        found = read_meta_properties(disk, data_dir)
    except CheckpointError as error:
        raise FormatError(str(error)) from error
    properties = embedded_properties(
        data_dir,
        port,
        overrides,
        node_id=found.node_id if found is not None else EMBEDDED_NODE_ID,
        has_static_voters=found is not None and has_static_voters(disk, data_dir),
    )
    return load(with_absolute_directories(properties))


def with_absolute_directories(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with absolute directories, as clients are to see them."""
    absolute = {
        key: ",".join(
            name if name == "*" or os.path.isabs(name) else os.path.join(os.getcwd(), name)
            for name in map(str.strip, properties[key].split(","))
            if name
        )
        for key in DIRECTORY_KEYS
        if key in properties
    }
    return {**properties, **absolute}


def format_embedded(config: BrokerConfig, disk: Disk, random: Random, clock: Clock) -> None:
    """Format the unformatted directories of an embedded node, with a quorum of this node only.

    Raises FormatError, OSError.
    """
    found = [_identity_unless_failed(disk, path, config) for path in directories_of(config)]
    if None not in found:
        return
    cluster_id = next((each.cluster_id for each in found if isinstance(each, MetaProperties)), None)
    imitated = config.node.kafkapy_imitated_release
    request = FormatRequest(
        config=config,
        cluster_id=cluster_id or uuid_to_string(random.uuid()),
        is_standalone=not config.quorum_voters,
        feature_levels={} if imitated is None else {METADATA_VERSION: IMITATED[imitated]},
        ignore_formatted=True,
    )
    format_directories(request, disk, random, clock, say=lambda line: None)


def _identity_unless_failed(disk: Disk, path: str, config: BrokerConfig) -> MetaProperties | Exception | None:
    """Return a directory's meta.properties, or the error if it cannot be read: the start continues without it.

    For the metadata directory the error is raised, because a node cannot start without it.
    """
    try:
        return read_meta_properties(disk, path)
    except (CheckpointError, OSError) as error:
        if path == config.metadata_log_dir:
            raise
        return error


def has_static_voters(disk: Disk, metadata_log_dir: str) -> bool:
    """Return whether a formatted directory's quorum has static voters (kraft.version 0), not voters in the log.

    Decided by the version of quorum-state; before the first start, by whether the voters' checkpoint is missing.
    Raises FormatError, OSError.
    """
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    state_path = f"{directory}/quorum-state"
    if not disk.exists(state_path):
        return not disk.exists(f"{directory}/{VOTERS_CHECKPOINT}")
    import json

    try:
        return bool(json.loads(disk.read_file(state_path))["data_version"] == 0)
    except (ValueError, LookupError, TypeError) as error:
        raise FormatError(f"{state_path} cannot be read: {error}") from error


# -- what is checked ----------------------------------------------------------------------------------------------


def _initial_voters(request: FormatRequest, random: Random) -> Sequence[Voter] | None:
    config = request.config
    has_dynamic_quorum = not config.quorum_voters
    if not has_dynamic_quorum and (request.voters is not None or request.is_standalone):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if request.is_standalone:
        return [_standalone_voter(config, random)]
    if (
        request.voters is None
        and not request.has_no_initial_controllers
        and config.is_controller
        and has_dynamic_quorum
    ):
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    if request.voters is not None and len({voter.node_id for voter in request.voters}) != len(request.voters):
        raise FormatError("Each node id may be named once in --initial-controllers.")
    return request.voters


def _standalone_voter(config: BrokerConfig, random: Random) -> Voter:
    if not config.is_controller:
        raise FormatError("You can only use --standalone on a controller.")
    endpoint = config.advertised_controller_listeners[0]
    return Voter(config.node_id, endpoint.host or "localhost", endpoint.port, random.uuid())


def _feature_levels(request: FormatRequest) -> dict[str, int]:
    """Return every feature's level: as requested, else the release's default. Raises FormatError."""
    metadata_version = request.feature_levels.get(METADATA_VERSION, KNOWN_FEATURES[METADATA_VERSION].max_version)
    levels = {name: known.max_version for name, known in KNOWN_FEATURES.items()}
    for name, by_version in DEFAULT_LEVELS.items():
        levels[name] = max((level for since, level in by_version.items() if since <= metadata_version), default=0)
    has_dynamic_quorum = not request.config.quorum_voters
    levels[KRAFT_VERSION] = 1 if has_dynamic_quorum else 0
    if request.scram_records and metadata_version < MV_3_5_IV2:
        raise FormatError("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
    for name, level in request.feature_levels.items():
        if name not in levels:
            supported = ", ".join(sorted(levels.keys() - {METADATA_VERSION}))
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {supported}")
        known = KNOWN_FEATURES[name]
        if not known.min_version <= level <= known.max_version:
            raise FormatError(f"No feature:{name} with feature level {level}")
        levels[name] = level
    if levels[ELIGIBLE_LEADER_REPLICAS_VERSION] and metadata_version < MV_4_0_IV1:
        feature = ELIGIBLE_LEADER_REPLICAS_VERSION
        raise FormatError(
            f"{feature} could not be set to {levels[feature]} because it depends on metadata.version level {MV_4_0_IV1}"
        )
    if bool(levels[KRAFT_VERSION]) != has_dynamic_quorum:
        raise FormatError(
            f"Cannot set kraft.version to {levels[KRAFT_VERSION]} "
            f"{'if' if has_dynamic_quorum else 'unless'} controller.quorum.voters is empty."
        )
    return levels


def _check_formatted(request: FormatRequest, formatted: Mapping[str, MetaProperties | None]) -> None:
    for path, properties in formatted.items():
        if properties is None:
            continue
        if not request.ignore_formatted:
            raise FormatError(
                f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
        if properties.cluster_id != request.cluster_id:
            raise FormatError(
                f"Invalid cluster.id in: {path}/{META_PROPERTIES_FILE}. Expected {request.cluster_id}, but read "
                f"{properties.cluster_id}"
            )
        if properties.node_id != request.config.node_id:
            raise FormatError(
                f"Stored node id {properties.node_id} doesn't match previous node id {request.config.node_id} in "
                f"{path}/{META_PROPERTIES_FILE}"
            )


# -- what is written ----------------------------------------------------------------------------------------------


def _format_directory(
    path: str,
    request: FormatRequest,
    content: _Content,
    *,
    disk: Disk,
    random: Random,
    clock: Clock,
    say: Callable[[str], None],
) -> None:
    config, voters, features = request.config, content.voters, content.features
    own_voter = None
    if path == config.metadata_log_dir and voters is not None:
        own_voter = next((voter for voter in voters if voter.node_id == config.node_id), None)
    level = features[METADATA_VERSION]
    release = release_of(level) or str(level)
    say(f"Formatting {_description(path, config, voters)} {path} with metadata.version {release}.")
    disk.make_directory(path)
    now_ms = clock.wall_ms()
    bootstrap = bootstrap_checkpoint(features, request.scram_records, now_ms=now_ms)
    disk.write_file_atomically(f"{path}/{BOOTSTRAP_CHECKPOINT}", bootstrap)
    if path == config.metadata_log_dir and voters is not None:
        disk.make_directory(f"{path}/{METADATA_DIRECTORY}")
        disk.sync_directory(path)
        checkpoint = voters_checkpoint(
            voters, config.controller_listener_names[0], kraft_version=features[KRAFT_VERSION], now_ms=now_ms
        )
        disk.write_file_atomically(f"{path}/{METADATA_DIRECTORY}/{VOTERS_CHECKPOINT}", checkpoint)
    # last, as it makes the directory count as formatted: after a crash before it, all is written again
    properties = MetaProperties(
        cluster_id=request.cluster_id,
        node_id=config.node_id,
        directory_id=own_voter.directory_id if own_voter is not None else random.uuid(),
    )
    disk.write_file_atomically(f"{path}/{META_PROPERTIES_FILE}", properties.encode())


def _description(path: str, config: BrokerConfig, voters: Sequence[Voter] | None) -> str:
    if path != config.metadata_log_dir:
        return "data directory"
    if voters is None:
        return "metadata directory"
    is_voter = any(voter.node_id == config.node_id for voter in voters)
    return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"


def bootstrap_checkpoint(
    features: Mapping[str, int], more: "Sequence[UserScramCredentialRecord]" = (), *, now_ms: int
) -> bytes:
    """Return bootstrap.checkpoint: header, the feature levels above 0 except kraft.version, `more`, footer."""
    from kafkapy.metadata.bootstrap import feature_records
    from kafkapy.metadata.record_serde import encode_record
    from kafkapy.record.builder import BatchFields, build_batch

    values = [encode_record(record, 0) for record in (*feature_records(features), *more)]
    header = _control_batch([SnapshotHeaderRecord()], base_offset=0, now_ms=now_ms)
    data = build_batch([(now_ms, None, value, ()) for value in values], BatchFields(base_offset=1, leader_epoch=0))
    return header + data + _control_batch([SnapshotFooterRecord()], base_offset=1 + len(values), now_ms=now_ms)


def voters_checkpoint(voters: Iterable[Voter], listener: str, *, kraft_version: int, now_ms: int) -> bytes:
    """Return the metadata log's snapshot 0-0: header, kraft.version and voters in one batch, then the footer."""
    from kafkapy.raft.control_records import voters_to_record

    recorded = VoterSet(
        RecordedVoter(ReplicaKey(voter.node_id, voter.directory_id), (Endpoint(listener, voter.host, voter.port),))
        for voter in voters
    )
    records: list[RaftControl] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=now_ms),
        KRaftVersionRecord(kraft_version=kraft_version),
        voters_to_record(recorded),
    ]
    head = _control_batch(records, base_offset=0, now_ms=now_ms)
    return head + _control_batch([SnapshotFooterRecord()], base_offset=len(records), now_ms=now_ms)


def _control_batch(records: "Sequence[RaftControl]", *, base_offset: int, now_ms: int) -> bytes:
    from kafkapy.record.control import build_raft_control

    return build_raft_control(records, base_offset=base_offset, leader_epoch=0, timestamp_ms=now_ms)
