"""Connects commands to any running cluster: a server.cluster.queries.Ask with negotiated versions.

Works with kafkapy and Apache Kafka, over connections of our own (--command-config), at the highest common versions.
"""

from typing import Any, Final

from kafkapy.cli.connection import Connection
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.server.cluster.queries import CONTROLLER_ENDPOINTS

FEATURES_SINCE: Final = 3
"""The first version of ApiVersions with feature levels."""
PROBE_TIMEOUT_S: Final = 2.0
"""A node that is there answers within milliseconds; several may have to be probed in a row."""


class BrokerQueries:
    """A connection with its broker's supported versions; a context manager."""

    def __init__(self, connection: Connection) -> None:
        """Raises OSError, ProtocolError."""
        self._connection = connection
        request = ApiVersionsRequest(client_software_name="kafkapy", client_software_version="1")
        try:
            response = connection.call(request, FEATURES_SINCE)
        except BaseException:
            connection.close()
            raise
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    def __enter__(self) -> "BrokerQueries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def knows(self, request_type: Any) -> bool:
        return request_type.API_KEY in self.versions

    def query(self, request: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the response at the highest common version. Raises OSError, ProtocolError."""
        api = APIS[request.API_KEY]
        least, most = self.versions.get(api.key, (0, -1))
        version = min(most, api.max_version)
        if version < max(least, api.min_version):
            raise ProtocolError(f"the broker does not serve {api.name} at a version that is known here")
        return self._connection.call(request, version, timeout_s)


class ClusterLink:
    """Sends requests to a broker, or to the active controller; connects again after a failure. A context manager.

    Requests are those that may be repeated: one whose connection ends before its response is sent once more, but
    for one that has timed out.
    """

    def __init__(self, servers: str, *, of_controllers: bool = False) -> None:
        """servers: HOST:PORT,... of brokers, or of controllers."""
        self._servers = servers
        self._of_controllers = of_controllers
        self._queries: BrokerQueries | None = None

    def __call__(self, request: Any, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Send a request, once more if its connection has ended; return the response. Raises OSError, KafkapyError."""
        is_new = self._queries is None
        try:
            response = self._connected().query(request, timeout_s)
        except OSError as error:
            self.close()
            if is_new or isinstance(error, TimeoutError):
                raise
            response = self._connected().query(request, timeout_s)
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            self.close()  # the next request finds the new one
        return response

    def _connected(self) -> BrokerQueries:
        """Return a connection to a broker, or to the active controller."""
        if self._queries is None:
            found = _of_kind(BrokerQueries(Connection.to_any(self._servers)), self._servers, self._of_controllers)
            self._queries = _of_active_controller(found) if self._of_controllers else found
        return self._queries

    def close(self) -> None:
        if self._queries is not None:
            self._queries.close()
            self._queries = None

    def __enter__(self) -> "ClusterLink":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _of_kind(found: BrokerQueries, servers: str, of_controllers: bool) -> BrokerQueries:
    """Return the connection if it is to a listener of this kind: a controllers' serves no Metadata."""
    if found.knows(MetadataRequest) != of_controllers:
        return found
    found.close()
    if of_controllers:
        raise ProtocolError(f"the listener at {servers} is a broker's: --bootstrap-server takes it")
    raise ProtocolError(f"the listener at {servers} is a controller's: --bootstrap-controller takes it")


def _of_active_controller(found: BrokerQueries) -> BrokerQueries:
    """Return a connection to the active controller, by one to any controller."""
    with found:
        response = found.query(DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS))
    for node in response.brokers:
        if node.broker_id == response.controller_id:
            return BrokerQueries(Connection(node.host, node.port))
    raise ProtocolError("no controller is active")


def is_answering(host: str, port: int) -> bool:
    """Return whether a node serves this user at an address."""
    try:
        BrokerQueries(Connection(host, port, timeout_s=PROBE_TIMEOUT_S)).close()
    except (OSError, KafkapyError):
        return False
    return True
