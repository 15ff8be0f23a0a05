"""The reactor over real sockets, on asyncio's own loop and on uvloop."""

import asyncio
import errno
import os
import resource
import select
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, Serving
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.reactor.socket_channel import KEPT_DESCRIPTORS, SocketChannel, resolve_overrides
from kafkapy.seams import FileRegion
from kafkapy.storage.system_disk import SystemDisk


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def run_main(main: Any) -> Any:
        bounded = asyncio.wait_for(main, 60)
        return asyncio.run(bounded) if request.param == "asyncio" else uvloop.run(bounded)

    return run_main


class Served:
    """A reactor on a free port of 127.0.0.1, as an async context manager."""

    def __init__(self, handler: Any, limits: ReactorLimits | None = None) -> None:
        self._handler = handler
        self._limits = limits or ReactorLimits()

    async def __aenter__(self) -> "Served":
        loop = asyncio.get_running_loop()
        self.pool = ThreadIoPool(loop, 2)
        self.reactor = Reactor(loop, self._limits, serving=Serving(self._handler), io_pool=self.pool)
        self.address = self.reactor.bind("MAIN", "PLAINTEXT", "127.0.0.1", 0)
        self.reactor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reactor.shut_down(100)
        assert self.reactor.connection_count == 0
        assert self.reactor.request_memory.bytes == 0
        self.pool.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)


async def echo(info: ConnectionInfo, frame: memoryview) -> Writer:
    out = Writer()
    out += frame
    return out


def echo_and_note(infos: list[ConnectionInfo]) -> Callable[[ConnectionInfo, memoryview], Coroutine[Any, Any, Writer]]:
    """Return a handler that also notes who asked."""

    async def handle(info: ConnectionInfo, frame: memoryview) -> Writer:
        infos.append(info)
        return await echo(info, frame)

    return handle


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def receive(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def test_frames_of_all_sizes_are_echoed(run: Any):
    async def main() -> None:
        async with Served(echo) as served:
            reader, writer = await served.connect()
            for size in (0, 1, 100, 16_384, 65_533, 1_000_000, 10_000_000):
                body = os.urandom(size)
                writer.write(framed(body))
                assert await receive(reader) == body
            writer.close()

    run(main())


def test_pipelined_frames_are_answered_in_order(run: Any):
    async def main() -> None:
        async with Served(echo) as served:
            reader, writer = await served.connect()
            bodies = [b"%d" % index * (index % 50) for index in range(2000)]
            writer.write(b"".join(map(framed, bodies)))
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    run(main())


@pytest.mark.parametrize("piece_bytes", [700, 20_000, 60_000])
def test_large_frames_in_pieces_are_answered_and_so_is_what_follows_them(run: Any, piece_bytes: int):
    body = os.urandom(200_000)

    async def main() -> None:
        async with Served(echo) as served:
            reader, writer = await served.connect()
            for _ in range(2):
                large = framed(body)
                for start in range(0, len(large), piece_bytes):
                    writer.write(large[start : start + piece_bytes])
                    await asyncio.sleep(0)
                assert await receive(reader) == body
                writer.write(framed(b"small"))
                assert await receive(reader) == b"small"
            writer.close()

    run(main())


@pytest.mark.parametrize("sent_bytes", [70_000, 190_000])
def test_a_peer_that_ends_amid_a_large_frame_is_forgotten(run: Any, sent_bytes: int):
    async def main() -> None:
        async with Served(echo) as served:
            with socket.create_connection(served.address) as peer:
                peer.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(peer, framed(bytes(200_000))[:sent_bytes])
                while not served.reactor.request_memory.bytes:
                    await asyncio.sleep(0.001)
            while served.reactor.connection_count != 0:
                await asyncio.sleep(0.001)

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere bytes are not awaited")
async def test_a_socket_is_readable_when_the_awaited_bytes_are_there_or_the_end():
    def is_readable() -> bool:
        return bool(select.select([connected], [], [], 0)[0])

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as peer:
        connected = listener.accept()[0]
        channel = SocketChannel(asyncio.get_running_loop(), connected)
        channel.await_bytes(1000)
        peer.sendall(bytes(999))
        assert not is_readable()
        channel.await_bytes(1)
        assert is_readable()
        channel.await_bytes(1000)
        assert not is_readable()
        peer.sendall(bytes(1))
        assert is_readable()
        assert channel.receive(2000) == bytes(1000)
        peer.sendall(bytes(10))
        assert not is_readable()
        peer.shutdown(socket.SHUT_WR)
        assert is_readable()
        channel.close()


def test_handlers_see_who_is_connected(run: Any):
    infos: list[ConnectionInfo] = []

    async def main() -> None:
        async with Served(echo_and_note(infos)) as served:
            reader, writer = await served.connect()
            port = writer.get_extra_info("sockname")[1]
            writer.write(framed(b"x"))
            await receive(reader)
            writer.close()
            assert infos[0].connection_id == f"127.0.0.1:{served.address[1]}-127.0.0.1:{port}-0-0"
            assert (infos[0].peer_host, infos[0].peer_port) == ("127.0.0.1", port)
            assert (infos[0].listener_name, infos[0].security_protocol) == ("MAIN", "PLAINTEXT")

    run(main())


@pytest.mark.parametrize("size", [1, 1000, 65_535, 65_536, 300_000, 5_000_000])
def test_regions_of_all_sizes_are_sent_between_their_neighbours(run: Any, tmp_path: Path, size: int):
    data = os.urandom(size + 100)
    (tmp_path / "log").write_bytes(data)
    file = SystemDisk().open(str(tmp_path / "log"))
    released = []

    async def fetch(info: ConnectionInfo, frame: memoryview) -> Writer:
        out = Writer()
        out += b"head"
        out.splices.append((4, FileRegion(file, 50, size, lambda: released.append(True))))
        out += b"tail"
        return out

    async def main() -> None:
        async with Served(fetch) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"1") + framed(b"2"))
            for _ in range(2):
                assert await receive(reader) == b"head" + data[50 : 50 + size] + b"tail"
            writer.close()

    run(main())
    assert released == [True, True]
    file.close()


def test_a_file_cut_under_a_region_closes_its_connection(run: Any, tmp_path: Path):
    (tmp_path / "log").write_bytes(bytes(100_000))
    file = SystemDisk().open(str(tmp_path / "log"))

    async def fetch(info: ConnectionInfo, frame: memoryview) -> Writer:
        out = Writer()
        out.splices.append((0, FileRegion(file, 0, 200_000)))
        return out

    async def main() -> None:
        async with Served(fetch) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"1"))
            received = await reader.read()
            assert len(received) <= 4 + 100_000
            writer.close()

    run(main())
    file.close()


def test_a_slow_reader_gets_everything(run: Any):
    async def big(info: ConnectionInfo, frame: memoryview) -> Writer:
        out = Writer()
        out += bytes(500_000)
        return out

    async def main() -> None:
        async with Served(big) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"x") * 40)
            await asyncio.sleep(0.1)
            for _ in range(40):
                assert len(await receive(reader)) == 500_000
            writer.close()

    run(main())


def test_a_half_closed_peer_is_answered(run: Any):
    async def slow(info: ConnectionInfo, frame: memoryview) -> Writer:
        await asyncio.sleep(0.05)
        return await echo(info, frame)

    async def main() -> None:
        async with Served(slow) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"last words"))
            writer.write_eof()
            assert await reader.read() == framed(b"last words")
            writer.close()

    run(main())


def test_a_reset_peer_is_forgotten(run: Any):
    async def main() -> None:
        async with Served(echo) as served:
            with socket.create_connection(served.address) as peer:
                peer.sendall(framed(b"x") + b"\x00\x00")
                while served.reactor.connection_count != 1:
                    await asyncio.sleep(0.001)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            while served.reactor.connection_count != 0:
                await asyncio.sleep(0.001)

    run(main())


def test_a_malformed_size_closes_only_its_connection(run: Any):
    async def main() -> None:
        async with Served(echo) as served:
            bad, bad_writer = await served.connect()
            good, good_writer = await served.connect()
            bad_writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await bad.read() == b""
            good_writer.write(framed(b"fine"))
            assert await receive(good) == b"fine"
            bad_writer.close()
            good_writer.close()

    run(main())


def test_real_descriptors_run_out_and_come_back(run: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kafkapy.reactor.acceptor.ACCEPT_PAUSE_MS", 50)
    refused = []

    def accept(self: socket.socket) -> Any:
        if len(refused) < 2:
            refused.append(True)
            raise OSError(errno.EMFILE, "Too many open files")
        return original(self)

    original = socket.socket.accept

    async def main() -> None:
        async with Served(echo) as served:
            monkeypatch.setattr(socket.socket, "accept", accept)
            reader, writer = await served.connect()
            writer.write(framed(b"x"))
            assert await receive(reader) == b"x"
            writer.close()

    run(main())
    assert len(refused) == 2


def test_the_last_descriptors_are_kept_for_files(run: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kafkapy.reactor.acceptor.ACCEPT_PAUSE_MS", 50)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files: list[int] = []

    async def is_refused(served: Served) -> bool:
        reader, writer = await served.connect()
        writer.write(framed(b"x"))
        try:
            return await reader.read(1) == b""
        except ConnectionError:
            return True
        finally:
            writer.close()

    async def main() -> None:
        async with Served(echo) as served:
            highest = max(map(int, os.listdir("/proc/self/fd")))
            most = highest + 2 * KEPT_DESCRIPTORS
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            while not files or files[-1] < most - KEPT_DESCRIPTORS:
                files.append(os.open(os.devnull, os.O_RDONLY))
            while not await is_refused(served):  # it took the place of a file that a broker of other tests closed
                files.append(os.open(os.devnull, os.O_RDONLY))
            while files:
                os.close(files.pop())
            reader, writer = await served.connect()
            writer.write(framed(b"x"))
            assert await receive(reader) == b"x"
            writer.close()

    try:
        run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in files:
            os.close(file)


def test_a_port_that_is_taken_is_an_error(run: Any):
    async def main() -> None:
        async with Served(echo) as served:
            with pytest.raises(OSError, match="in use") as raised:
                served.reactor.bind("OTHER", "PLAINTEXT", *served.address)
            assert raised.value.errno == errno.EADDRINUSE

    run(main())


def test_all_interfaces_take_ipv4_and_show_it_as_ipv4(run: Any):
    infos: list[ConnectionInfo] = []

    async def main() -> None:
        async with Served(echo_and_note(infos)) as served:
            _, port = served.reactor.bind("ALL", "PLAINTEXT", "", 0)
            served.reactor.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"x"))
            await receive(reader)
            writer.close()
            assert infos[0].peer_host == "127.0.0.1"

    run(main())


async def test_localhost_is_bound_where_clients_look_first():
    async with Served(echo) as served:
        host, port = served.reactor.bind("NAMED", "PLAINTEXT", "localhost", 0)
        assert host == "127.0.0.1"
        assert port > 0


def test_overrides_by_name_count_for_the_addresses_of_the_name():
    assert resolve_overrides({"10.1.2.3": 5, "localhost": 7})["127.0.0.1"] == 7
    assert resolve_overrides({"10.1.2.3": 5}) == {"10.1.2.3": 5}


async def test_nagle_is_off_on_accepted_sockets():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        channel = SocketChannel(asyncio.get_running_loop(), accepted)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert channel.receive(10) is None
        channel.close()
