"""The quorum driver's exchange with peers: the transport, responses with data, the download of snapshots."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from kafkapy.errors import StorageError
from kafkapy.machine import Event
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.control_records import to_log_batch
from kafkapy.raft.effects import (
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
from kafkapy.storage.metadata.metadata_log import MetadataLog
from kafkapy.storage.metadata.snapshot import PartFile

logger = logging.getLogger(__name__)

POSITION_OUT_OF_RANGE: Final = ErrorCode.POSITION_OUT_OF_RANGE.value


KraftVersions: TypeAlias = tuple[int, int] | str
"""The lowest and highest level, or the name of an error."""


class RaftTransport(Protocol):
    """How the quorum reaches its peers."""

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
    """Sends the requests and responses of the core, and owns the download of a snapshot."""

    def __init__(
        self,
        log: MetadataLog,
        disk: Disk,
        directory: str,
        transport: RaftTransport | None,
        step: Callable[[Event], None],
    ) -> None:
        """transport: None for a quorum of one. step(event) takes a response to the core, later."""
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


def _respond(respond_to: object, response: Response) -> None:
    assert callable(respond_to)
    respond_to(response)


def with_records(log: MetadataLog, effect: SendResponseWithRecords) -> Response:
    """Return the response to a Fetch, with batches from the log."""
    response = effect.response
    assert isinstance(response, FetchResponse)
    data = log.read_bytes(effect.fetch_offset, effect.max_bytes)
    return replace(response, batches=tuple(to_log_batch(batch) for batch in batches(data)))


def with_snapshot(disk: Disk, log: MetadataLog, effect: SendResponseWithSnapshot) -> Response:
    """Return the response to a FetchSnapshot, with a part of the file."""
    response = effect.response
    assert isinstance(response, FetchSnapshotResponse)
    file = disk.open(log.snapshots.path_of(effect.snapshot_id), writable=False)
    try:
        size_bytes = file.size()
        if not 0 <= effect.position < size_bytes:
            return replace(response, error=POSITION_OUT_OF_RANGE)
        data = file.pread(min(effect.max_bytes, size_bytes - effect.position), effect.position)
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
        """Append a part; position 0 starts a new file."""
        if effect.position == 0:
            self._part = PartFile(self._disk, self._directory, effect.snapshot_id)
        assert self._part is not None
        assert self._part.size_bytes == effect.position
        self._part.append(effect.data)

    def install(self) -> Event:
        """Check the file and rename it to its final name; return the event for the core. Blocks the loop."""
        part, self._part = self._part, None
        assert part is not None
        part.sync()
        try:
            reader = part.open_reader()
            reader.check()
        except StorageError as error:
            logger.warning("Rejected a metadata snapshot from the leader: %s", error)
            part.abort()
            return SnapshotRefused(part.snapshot_id)
        part.freeze()
        return SnapshotInstalled(part.snapshot_id, reader.voters, reader.kraft_version)
