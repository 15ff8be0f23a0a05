"""TLS over real sockets: what a peer sends amid a large frame beside its data, while the broker awaits many bytes.

The rest of a large frame is awaited by the socket's low-water mark (SO_RCVLOWAT). Key changes and alerts are records
that are smaller than it.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, Serving
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.reactor.limits import MAX_AWAITED_BYTES, ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.reactor.tls_admission import ServerTls
from tests.support.certificates import Authority, server_context
from tests.support.eventually import eventually
from tests.support.openssl_client import TLS1_2, OpenSslClient, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no libssl to load")
AUTHORITY = Authority()
FRAME = (200_000).to_bytes(4, "big") + bytes(200_000)
SMALL = b"\0\0\0\5small"
VERSIONS = pytest.mark.parametrize("version", [0, TLS1_2], ids=["TLSv1.3", "TLSv1.2"])


class Served:
    """A reactor on a loop of a thread; it answers with the number of bytes of a request."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.pool = ThreadIoPool(loop, 2)
        self.reactor = Reactor(loop, ReactorLimits(), serving=Serving(self._count), io_pool=self.pool)
        tls = ServerTls(server_context(AUTHORITY.issue("broker"), directory), lambda _: "User:ANONYMOUS")
        _, self.port = self.reactor.bind("MAIN", "SSL", "127.0.0.1", 0, tls)
        self.reactor.start()

    async def _count(self, info: ConnectionInfo, frame: memoryview) -> Writer:
        out = Writer()
        out += len(frame).to_bytes(4, "big")
        return out

    @property
    def awaited_bytes(self) -> int:
        """What the broker awaits of its only connection, 0 if there is none."""
        links = (link for processor in self.reactor.processors for link in [*processor.links])
        return max((link.awaited_bytes for link in links), default=0)

    async def end(self) -> None:
        await self.reactor.shut_down(100)
        self.pool.close()


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> Served:
        return Served(directory, loop)

    broker = asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
    try:
        yield broker
    finally:
        asyncio.run_coroutine_threadsafe(broker.end(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def send_amid_frame(broker: Served, client: OpenSslClient, data: bytes) -> None:
    """Send part of a frame, and wait until the broker awaits much of the rest."""
    client.send(data)
    eventually(lambda: broker.awaited_bytes > MAX_AWAITED_BYTES // 4)


@pytest.mark.parametrize("sent_bytes", [100, 16_484, 70_000, 180_000])
def test_a_key_change_amid_a_large_frame_is_no_end_of_it(tmp_path: Path, sent_bytes: int):
    with served(tmp_path) as broker, OpenSslClient(broker.port) as client:
        for _ in range(3):
            send_amid_frame(broker, client, FRAME[:sent_bytes])
            assert client.update_keys()
            client.send(FRAME[sent_bytes:])
            assert client.receive() == b"\0\0\0\4" + (200_000).to_bytes(4, "big")
            assert client.send_request(SMALL) == b"\0\0\0\4\0\0\0\5"


def test_key_changes_between_all_records_of_a_frame_are_answered(tmp_path: Path):
    with served(tmp_path) as broker, OpenSslClient(broker.port) as client:
        for start in range(0, len(FRAME), 10_000):
            client.send(FRAME[start : start + 10_000])
            assert client.update_keys()
        assert client.receive() == b"\0\0\0\4" + (200_000).to_bytes(4, "big")


def _leave(client: OpenSslClient) -> None:
    """Send close_notify, then close."""
    client.send_close_notify()
    client.close()


@VERSIONS
@pytest.mark.parametrize("leave", [_leave, OpenSslClient.close], ids=["goodbye", "end"])
def test_a_peer_that_leaves_amid_a_large_frame_is_forgotten(
    tmp_path: Path, version: int, leave: Callable[[OpenSslClient], None]
):
    with served(tmp_path) as broker, OpenSslClient(broker.port, version) as client:
        send_amid_frame(broker, client, FRAME[:70_000])
        leave(client)
        eventually(lambda: not broker.reactor.connection_count)
        assert broker.reactor.request_memory.bytes == 0
