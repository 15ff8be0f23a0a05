"""A broker that is alone in its cluster, coordinates every group, and answers what a test says."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.headers import read_request_header, write_response_header
from kafkapy.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkapy.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kafkapy.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from kafkapy.protocol.primitives import Writer

Response = Callable[[Any, int], Any]
"""The response to a decoded request of a version."""
NEWEST_FETCH_OF_OFFSETS_BY_NAME = 9


class ScriptedBroker:
    """Answers with `responses`, by the name of the API; `requests`: the names of those that came, in order."""

    def __init__(self, listener: socket.socket, responses: Mapping[str, Response]) -> None:
        self.host, self.port = listener.getsockname()
        self.requests: list[str] = []
        self._listener = listener
        self._responses: dict[str, Response] = {
            "ApiVersions": self._api_versions,
            "Metadata": self._metadata,
            "DescribeCluster": self._cluster,
            "FindCoordinator": self._find_coordinator,
            **responses,
        }

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as incoming:
            while size := incoming.read(4):
                connection.sendall(self._answered(incoming.read(int.from_bytes(size, "big"))))

    def _answered(self, frame: bytes) -> bytes:
        header, position = read_request_header(frame)
        name = APIS[header.api_key].name
        self.requests.append(name)
        request = request_type(header.api_key).decode(frame[position:], header.api_version)
        response = self._responses[name](request, header.api_version)
        out = Writer()
        write_response_header(out, header.api_key, header.api_version, header.correlation_id)
        assert isinstance(response, response_type(header.api_key))
        response.write(out, header.api_version)
        return len(out).to_bytes(4, "big") + bytes(out)

    def _api_versions(self, request: Any, version: int) -> Any:
        served = [
            ApiVersion(
                api_key=each.key,
                min_version=each.min_version,
                max_version=min(each.max_version, NEWEST_FETCH_OF_OFFSETS_BY_NAME),
            )
            for each in APIS.values()
            if each.name in self._responses
        ]
        return ApiVersionsResponse(api_keys=served)

    def _metadata(self, request: Any, version: int) -> Any:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, host=self.host, port=self.port)], cluster_id="scripted"
        )

    def _cluster(self, request: Any, version: int) -> Any:
        return DescribeClusterResponse(
            cluster_id="scripted", controller_id=1, brokers=[DescribeClusterBroker(1, host=self.host, port=self.port)]
        )

    def _find_coordinator(self, request: Any, version: int) -> Any:
        if version < 4:
            return FindCoordinatorResponse(node_id=1, host=self.host, port=self.port, error_message=None)
        found = [
            Coordinator(key, node_id=1, host=self.host, port=self.port, error_message=None)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)


@contextmanager
def scripted(**responses: Response) -> Iterator[ScriptedBroker]:
    """Yield a broker that answers these APIs, besides those that ask who is in the cluster."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = ScriptedBroker(listener, responses)
        threading.Thread(target=broker.accept, daemon=True).start()
        yield broker
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
