"""Messages between the quorum and its peers: requests, responses with records, the download of snapshots."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from kafkapy.errors import StorageError
from kafkapy.machine import Event
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.control_records import to_log_batch
from kafkapy.raft.effects import (
    InstallSnapshot,
    SendRequest,
    SendResponse,
    SendResponseWithRecords,
    SendResponseWithSnapshot,
    WriteSnapshotPart,
)
from kafkapy.raft.events import RequestFailed, ResponseReceived, SnapshotInstalled, SnapshotRefused
from kafkapy.raft.messages import FetchResponse, FetchSnapshotResponse, Request, Response
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.record.batches import batches
from kafkapy.seams import Disk
from kafkapy.storage.log_dir import is_shortage, lacks_space
from kafkapy.storage.metadata.metadata_log import MetadataLog
from kafkapy.storage.metadata.snapshot import PartFile

logger = logging.getLogger(__name__)

POSITION_OUT_OF_RANGE: Final = ErrorCode.POSITION_OUT_OF_RANGE.value
SNAPSHOT_NOT_FOUND: Final = ErrorCode.SNAPSHOT_NOT_FOUND.value
UNKNOWN_SERVER_ERROR: Final = ErrorCode.UNKNOWN_SERVER_ERROR.value

MAX_RESPONSE_BYTES: Final = 1 << 20
"""The largest response: it is read into memory on the event loop. Followers request as much."""


KraftVersions: TypeAlias = tuple[int, int] | str
"""The lowest and highest level, or the name of an error."""


class RaftTransport(Protocol):
    """The quorum's connection to its peers."""

    def send(
        self,
        node_id: int,
        endpoints: tuple[Endpoint, ...],
        request: Request,
        on_response: Callable[[Response | None], None],
    ) -> None:
        """Send a request; on_response is called later on the loop's thread, with None if no response will come.

        A negative node_id is a bootstrap server; `endpoints` is empty then, and the transport knows the address.
        """
        ...

    def query_kraft_versions(self, voter: Voter, on_versions: Callable[[KraftVersions], None]) -> None:
        """Request the kraft.version levels that a prospective voter supports (ApiVersions)."""
        ...


class PeerExchange:
    """Sends the core's requests and responses; owns the download of a snapshot."""

    def __init__(
        self,
        log: MetadataLog,
        disk: Disk,
        directory: str,
        transport: RaftTransport | None,
        step: Callable[[Event], None],
    ) -> None:
        """transport: None for a quorum of one. step(event) passes a response to the core, later."""
        self._log = log
        self._disk = disk
        self._transport = transport
        self._step = step
        self.download = SnapshotDownload(disk, directory)

    def send(self, effect: SendRequest) -> RequestFailed | None:
        """Send a request; return its failure if there is no transport."""
        if self._transport is None:
            return RequestFailed(effect.node_id, effect.request_id)

        def on_response(response: Response | None) -> None:
            if response is None:
                self._step(RequestFailed(effect.node_id, effect.request_id))
            else:
                self._step(ResponseReceived(effect.node_id, effect.request_id, response))

        self._transport.send(effect.node_id, effect.endpoints, effect.request, on_response)
        return None

    def respond(self, effect: SendResponse) -> None:
        _respond(effect.respond_to, effect.response)

    def respond_with_records(self, effect: SendResponseWithRecords) -> None:
        _respond(effect.respond_to, with_records(self._log, effect))

    def respond_with_snapshot(self, effect: SendResponseWithSnapshot) -> None:
        _respond(effect.respond_to, with_snapshot(self._disk, self._log, effect))

    def install_snapshot(self, effect: InstallSnapshot) -> Event:
        """Give the downloaded snapshot its name; return the event for the core. Raises OSError if the disk fails.

        If the disk is full, the core has it downloaded again: after a failed fsync the file is not what was written.
        """
        try:
            return self.download.install()
        except OSError as error:
            if not lacks_space(error):
                raise
            logger.warning("No room for a metadata snapshot from the leader: %s", error)
            self._log.make_room()
            return SnapshotRefused(effect.snapshot_id)


def _respond(respond_to: object, response: Response) -> None:
    assert callable(respond_to)
    respond_to(response)


def with_records(log: MetadataLog, effect: SendResponseWithRecords) -> Response:
    """Return the response to a Fetch, with batches from the log. Raises StorageError, OSError if the disk fails."""
    response = effect.response
    assert isinstance(response, FetchResponse)
    try:
        data = log.read_bytes(effect.fetch_offset, min(effect.max_bytes, MAX_RESPONSE_BYTES))
    except (StorageError, OSError) as error:
        if not is_shortage(error):
            raise
        logger.warning("Metadata records are not sent to a peer: %s", error)
        return replace(response, error=UNKNOWN_SERVER_ERROR)
    return replace(response, batches=tuple(to_log_batch(batch) for batch in batches(data)))


def with_snapshot(disk: Disk, log: MetadataLog, effect: SendResponseWithSnapshot) -> Response:
    """Return the response to a FetchSnapshot, with a part of the file. Raises OSError if the disk fails."""
    response = effect.response
    assert isinstance(response, FetchSnapshotResponse)
    try:
        file = disk.open(log.snapshots.path_of(effect.snapshot_id), writable=False)
    except FileNotFoundError:  # it was deleted meanwhile
        return replace(response, error=SNAPSHOT_NOT_FOUND)
    except OSError as error:
        if not is_shortage(error):
            raise
        logger.warning("A metadata snapshot is not sent to a peer: %s", error)
        return replace(response, error=UNKNOWN_SERVER_ERROR)
    try:
        size_bytes = file.size()
        if not 0 <= effect.position < size_bytes:
            return replace(response, error=POSITION_OUT_OF_RANGE)
        part_bytes = min(effect.max_bytes, MAX_RESPONSE_BYTES, size_bytes - effect.position)
        data = file.pread(part_bytes, effect.position)
    finally:
        file.close()
    return replace(response, size_bytes=size_bytes, data=data)


class SnapshotDownload:
    """A snapshot being downloaded from the leader, part by part."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._part: PartFile | None = None

    def write(self, effect: WriteSnapshotPart) -> None:
        """Append a part; position 0 starts a new file, and drops the one before."""
        if effect.position == 0:
            former, self._part = self._part, None  # without room for a new file this is tried again
            if former is not None:
                former.abort()
            self._part = PartFile(self._disk, self._directory, effect.snapshot_id)
        assert self._part is not None
        assert self._part.size_bytes == effect.position
        self._part.append(effect.data)

    def install(self) -> Event:
        """Check the file and rename it to its final name; return the event for the core. Blocks the loop.

        Raises OSError; the file is deleted then.
        """
        part, self._part = self._part, None
        assert part is not None
        try:
            part.sync()
            reader = part.open_reader()
            reader.check()
            part.freeze()
        except (StorageError, OSError) as error:
            part.abort()
            if isinstance(error, OSError):
                raise
            logger.warning("Rejected a metadata snapshot from the leader: %s", error)
            return SnapshotRefused(part.snapshot_id)
        return SnapshotInstalled(part.snapshot_id, reader.voters, reader.kraft_version)
