"""Registries for tests: a store in memory, an API over it, whole registries over a broker."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from kafkapy.cli.connecting_options import bound
from kafkapy.registry.election import Identity
from kafkapy.registry.http.api import Api
from kafkapy.registry.http.app import App
from kafkapy.registry.http.server import ServerThread, Tls
from kafkapy.registry.node import RegistryNode, RegistryOptions
from kafkapy.registry.registry import NewRecords, Registry
from kafkapy.registry.state import RegistryState

AVRO = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}, separators=(",", ":"))
AVRO_2 = json.dumps(
    {
        "type": "record",
        "name": "T",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 1}],
    },
    separators=(",", ":"),
)
AVRO_3 = json.dumps({"type": "record", "name": "T", "fields": [{"name": "c", "type": "int"}]}, separators=(",", ":"))


class MemoryStore:
    """registry.Store without a topic: what is appended is replayed at once."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.records: list[tuple[bytes, bytes | None]] = []

    def catch_up(self) -> None: ...

    def begin_write(self) -> None: ...

    def append(self, records: NewRecords) -> None:
        for key, value in records:
            self.records.append((key, value))
            self.state.replay(key, value, timestamp_ms=1)


class Leadership:
    """An election whose outcome a test says."""

    def __init__(self, leader: Identity | None, *, is_leader: bool) -> None:
        self.leader = leader
        self.is_leader = is_leader

    def await_leader(self, timeout_s: float) -> Identity | None:
        return self.leader


ALONE = Leadership(Identity("http", "127.0.0.1", 1), is_leader=True)


class ApiClient:
    """Requests to an App, without a network."""

    def __init__(
        self, store: MemoryStore | None = None, election: Any = ALONE, users: dict[str, str] | None = None
    ) -> None:
        self.store = store or MemoryStore()
        self.registry = Registry(self.store)
        api = Api(self.registry, lambda: ("cluster", "group"))
        self._transport = httpx.ASGITransport(App(api, election, users))

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Return the status, and the response's JSON; its text if it is none."""
        response = await self.response(method, path, body, **options)
        try:
            return response.status_code, response.json()
        except ValueError:
            return response.status_code, response.text

    async def response(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://registry") as client:
            content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.request(method, path, content=content, **options)


@contextmanager
def running_registry(servers: str, *, tls: Tls | None = None, **options: Any) -> Iterator[tuple[RegistryNode, str]]:
    """A registry over brokers, and its URL."""
    listener = bound("127.0.0.1", 0)
    port = listener.getsockname()[1]
    scheme = "http" if tls is None else "https"
    forwarding = None if tls is None else tls.forwarding_context()
    identity = Identity(scheme, "localhost" if tls else "127.0.0.1", port)
    node = RegistryNode(RegistryOptions(servers=servers, identity=identity, forwarding=forwarding, **options))
    try:
        node.start()
        server = ServerThread(node.app, listener, tls)
        try:
            yield node, identity.url
        finally:
            server.stop()
    finally:
        node.stop()
        listener.close()
