"""`kafkapy.Broker`: a broker inside a test or a program.

    with Broker() as broker:                    # runs on its own thread
        Producer({"bootstrap.servers": broker.bootstrap_servers})

    async with Broker() as broker:              # runs on the caller's event loop
        ...

    with Broker(tls=True, users={"alice": "secret"}) as broker:     # SASL_SSL, with a generated certificate
        Producer(broker.client_config("alice"))

Without a data_dir, the data is in a temporary directory that is removed at the end, and no fsync waits for a disk. With
a data_dir, topics and records are kept for the next time. A `Broker` whose `with` block never ends stops when the
program does.

If the broker fails (for example because its disk failed), it stops serving and logs the reason. From then on every
method, and the end of the `with` block, raises RuntimeError.
"""

import asyncio
import atexit
import contextlib
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from kafkapy.config.embedded import EMBEDDED_NODE_ID
from kafkapy.config.load import warnings_of_keys
from kafkapy.embedded.failures import check_not_failed, naming_port, stop, stop_when_failed
from kafkapy.embedded.interception import Interception
from kafkapy.embedded.loop_thread import LoopThread, on_own_loop
from kafkapy.embedded.options import (
    BROKER_OPTIONS,
    check_data_dir,
    check_options,
    client_config,
    disk_state_of,
    is_virtual,
    properties_of,
    security_of,
    snapshot_of,
    texts_of,
)
from kafkapy.embedded.temporary import TemporaryDirectory, lasting_directory
from kafkapy.server.broker import BrokerServer
from kafkapy.server.process.distributions import warnings_of_installation
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.storage.offline.format import directories_of, embedded_config, format_embedded
from kafkapy.storage.system_disk import SystemDisk

if TYPE_CHECKING:
    from typing import Unpack

    from kafkapy.config.broker import BrokerConfig
    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.network import ClientNetwork, ClientProxy
    from kafkapy.embedded.observed.groups import Groups
    from kafkapy.embedded.observed.observation import Observation
    from kafkapy.embedded.observed.requests import Requests
    from kafkapy.embedded.observed.topics import Topics
    from kafkapy.embedded.options import BrokerOptions
    from kafkapy.embedded.snapshots import Snapshot
    from kafkapy.embedded.virtual_time import BrokerClock, VirtualLoop, WorkCount
    from kafkapy.registry.embedded import EmbeddedRegistry
    from kafkapy.seams import Disk

NOT_RUNNING: Final = "this broker is not running: use it as `with Broker() as broker:`"
NOT_BLOCKING: Final = "this broker runs on the caller's event loop: await the method whose name ends in _async"

R = TypeVar("R")

logger = logging.getLogger("kafkapy.server")


class Broker:
    """One embedded node; a sync and async context manager.

    The methods `create_topics`, `restart` and `kill` block, for `with`; in `async with` it is `await
    broker.create_topics_async(...)` and so on.

    | argument | |
    |---|---|
    | `data_dir` | the data is kept there; None: in a temporary directory |
    | `port` | where clients connect, on 127.0.0.1; 0: a free one |
    | `properties` | Kafka's keys, as in {"num.partitions": 3}; unknown keys cause a UserWarning |
    | `tls` | clients connect by TLS |
    | `users` | passwords by name; clients log in by SASL/PLAIN or SCRAM |
    | `acls` | as in "allow alice read topic:orders", "deny * all group:test-*"; everything else is denied |
    | `version` | "2.8", "3.9", "4.1", "4.3" or "4.4": the API versions and features of that release of Apache Kafka |
    | `registry` | a schema registry beside it, at `schema_registry_url` (extra `registry`) |
    | `clock` | "virtual": `clock.advance("7d")` moves the broker's time on; "system" |
    | `snapshot` | what `snapshot()` of a broker returned, or its directory: the broker begins with its data |
    | `network_faults` | whether `network` works; clients connect through a proxy then |
    | `disk_faults` | whether `faults.fill_disk()` and the like work; every access to a file takes longer then |
    """

    def __init__(self, data_dir: str | Path | None = None, **options: "Unpack[BrokerOptions]") -> None:
        check_options("Broker", options, BROKER_OPTIONS)
        check_data_dir("Broker", data_dir)
        self._temporary: TemporaryDirectory | None = None
        self._given_data_dir = data_dir
        self._given_port = self._port = options.get("port", 0)
        """The port since the first start; a restart uses the same."""
        self._properties = properties_of(options)
        for warning in warnings_of_keys(self._properties):
            warnings.warn(warning, stacklevel=2)
        self._security = security_of(options)
        self._directory: str | None = None
        """The data directory while it is in use, also after `kill`."""
        self._server: BrokerServer | None = None
        self._watch: asyncio.Task[None] | None = None
        self._thread: LoopThread | None = None
        self._interception = Interception()
        self._wants_registry = options.get("registry", False)
        self._registry: EmbeddedRegistry | None = None
        self._disk_state = disk_state_of(options)
        self._is_virtual = is_virtual(options)
        self._snapshot = snapshot_of(options)
        self._virtual: VirtualLoop | None = None
        self._work: WorkCount | None = None
        self._has_network_faults = options.get("network_faults", False)
        self._proxy: ClientProxy | None = None

    @property
    def faults(self) -> "ActingFaults":
        """Faults by name: `broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)`; each has to hit."""
        if self._interception.faults is None:
            from kafkapy.embedded.faults.actions import ActingFaults
            from kafkapy.embedded.faults.worlds import OneBroker

            world = OneBroker(self._servers, self._disk_state, self.kill, self.restart)
            self._interception.faults = ActingFaults(self._intercept, world)
        return self._interception.faults

    @property
    def topics(self) -> "Topics":
        """The topics and their records: `broker.topics["orders"].wait_for(3)`."""
        return self._observation.topics

    @property
    def groups(self) -> "Groups":
        """The groups, their members and lag: `broker.groups["service"].lag`."""
        return self._observation.groups

    @property
    def requests(self) -> "Requests":
        """The last requests of clients, once `requests.on()` has turned that on."""
        return self._observation.requests

    @cached_property
    def _observation(self) -> "Observation":
        from kafkapy.embedded.observed.observation import of_servers

        found = of_servers(self._servers, self._intercept, self._registry_url)
        self._interception.requests = found.requests
        return found

    def _servers(self) -> list[BrokerServer]:
        if self._thread is not None:
            self._thread.check_not_in_child()
        return [self._running]

    def _registry_url(self) -> str | None:
        return None if self._registry is None else self._registry.url

    def _intercept(self) -> None:
        """Apply faults to requests, and record requests, from now on, also after a restart."""
        server = self._running
        if self._thread is None:
            self._interception.install(server)
        else:
            self._thread.run_soon(lambda: self._interception.install(server))

    @property
    def clock(self) -> "BrokerClock":
        """The broker's time; with clock="virtual", `advance("7d")` moves it on."""
        from kafkapy.embedded.virtual_time import BrokerClock

        return BrokerClock(self._virtual, self._count_unfinished, self._servers)

    def _count_unfinished(self) -> int:
        node = self._running.node
        return node.unfinished_count + (self._work.unfinished if self._work is not None else 0)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, the address that clients connect to."""
        servers = self._running.bootstrap_servers
        return servers if self._proxy is None else self._proxy.bootstrap_servers

    @property
    def network(self) -> "ClientNetwork":
        """The network between clients and broker, to cut, delay or limit; with network_faults=True."""
        _ = self._running  # raises RuntimeError if it does not run
        if self._proxy is None:
            raise RuntimeError("this needs Broker(network_faults=True), whose clients connect through a proxy")
        return self._proxy.network

    def client_config(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the properties of a confluent-kafka client: the address, and what `tls` and `users` require.

        `mechanism`: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises ValueError for an unknown user or mechanism.
        """
        return client_config(self._security, self.bootstrap_servers, user, mechanism)

    @property
    def ca_pem(self) -> str | None:
        """The CA certificate that clients trust (PEM); None without `tls`."""
        return None if self._security is None else self._security.ca_pem

    @property
    def schema_registry_url(self) -> str:
        """Where the schema registry serves, as http://127.0.0.1:PORT. Raises RuntimeError without `registry=True`."""
        if self._registry is None:
            raise RuntimeError(NOT_RUNNING if self._wants_registry else "this broker has none: Broker(registry=True)")
        return self._registry.url

    @property
    def cluster_id(self) -> str:
        return self._running.cluster_id

    @property
    def node_id(self) -> int:
        return self._running.node_id

    def create_topics(
        self, *names: str, partitions: int = -1, configs: Mapping[str, object] | None = None, timeout_s: float = 30
    ) -> None:
        """Create topics that clients can use on return; partitions=-1: num.partitions. Raises ApiError."""
        self._blocking(
            lambda: self.create_topics_async(*names, partitions=partitions, configs=configs, timeout_s=timeout_s)
        )

    @on_own_loop
    async def create_topics_async(
        self, *names: str, partitions: int = -1, configs: Mapping[str, object] | None = None, timeout_s: float = 30
    ) -> None:
        from kafkapy.embedded.topics import create_topics

        texts = texts_of(configs)
        await create_topics(self._running, names, partitions=partitions, configs=texts, timeout_s=timeout_s)

    def delete_topics(self, *names: str) -> None:
        """Delete topics; those that do not exist are ignored. Raises ApiError."""
        self._blocking(lambda: self.delete_topics_async(*names))

    @on_own_loop
    async def delete_topics_async(self, *names: str) -> None:
        from kafkapy.embedded.topics import delete_topics

        await delete_topics(self._running, names)

    def snapshot(self, path: str | Path | None = None) -> "Snapshot":
        """Keep the data as it is now, for `Broker(snapshot=...)`; the broker stops for that, and starts again.

        `path`: a new directory; None: a temporary one, removed at the end of the process. Raises SnapshotError.
        """
        return self._blocking(lambda: self.snapshot_async(path))

    @on_own_loop
    async def snapshot_async(self, path: str | Path | None = None) -> "Snapshot":
        from kafkapy.embedded.snapshots import SnapshotError, make_snapshot

        directories = directories_of(self._running.config)
        if directories != [self._directory]:
            raise SnapshotError(f"a snapshot is of one log directory, and log.dirs names {', '.join(directories)}")
        target = Path(path) if path is not None else Path(lasting_directory("snapshot-"))
        await self._stop_server()
        try:
            return await asyncio.to_thread(make_snapshot, Path(directories[0]), target.absolute())
        finally:
            await self._start_server()

    def restart(self) -> None:
        """Stop as on SIGTERM, then start again, with the same data and port. After `kill` only start."""
        self._blocking(self.restart_async)

    @on_own_loop
    async def restart_async(self) -> None:
        if self._directory is None:
            raise RuntimeError(NOT_RUNNING)
        await self._stop_server()
        await self._start_server()

    def kill(self) -> None:
        """End as in a crash: connections are cut, nothing is flushed or marked clean. `restart` recovers the data."""
        self._blocking(self.kill_async)

    @on_own_loop
    async def kill_async(self) -> None:
        server, watch = self._running, self._watch
        self._server = self._watch = None
        assert watch is not None
        watch.cancel()
        await server.kill()

    async def start(self) -> Self:
        """Run on the caller's loop; returns when clients may connect. Raises ConfigError, StorageError, OSError."""
        self._check_not_running()
        if self._is_virtual and self._virtual is None:
            raise RuntimeError('clock="virtual" moves the time of a whole event loop: use `with` or `async with`')
        try:
            self._directory, self._port = self._prepare_directory(), self._given_port
            if self._has_network_faults:
                from kafkapy.embedded.network import ClientProxy

                with naming_port(self._given_port):
                    self._proxy = ClientProxy(EMBEDDED_NODE_ID, self._given_port)
                self._port = self._proxy.broker_port
            server = await self._start_server()
            if self._security is not None:
                await self._security.apply(server, SystemRandom())
            if self._wants_registry:
                from kafkapy.registry.embedded import started_beside

                self._registry = await started_beside(self.client_config, self._security)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to raise
                await self._stop_server()
            self._clean_up()
            raise
        return self

    async def _start_server(self) -> BrokerServer:
        """Start a server on the directory; the broker keeps the port that it binds first."""
        assert self._directory is not None
        random, clock, properties = SystemRandom(), SystemClock(), self._properties
        new_helper = None
        if self._virtual is not None:
            from kafkapy.embedded.virtual_time import PROPERTIES, VirtualClock, WorkCount

            clock, self._work = VirtualClock(self._virtual), WorkCount()
            properties, new_helper = {**PROPERTIES, **properties}, self._work.new_helper
        # the user's keys win over those of the login; the proxy's win over both, or clients would pass it by
        if self._security is not None:
            properties = self._security.properties(self._port, properties)
        if self._proxy is not None:
            protocol = "PLAINTEXT" if self._security is None else self._security.protocol
            properties = {**properties, **self._proxy.properties(protocol)}
        config, found = embedded_config(SystemDisk(), self._directory, self._port, properties)
        disk: Disk = SystemDisk(syncs=not self._is_temporary(config))
        if self._disk_state is not None:
            from kafkapy.embedded.faults.faulty_disk import FaultyDisk

            disk = FaultyDisk(disk, self._disk_state)
        self._log_warnings((*warnings_of_installation(), *found))
        format_embedded(config, disk, random, clock)
        server = BrokerServer(config, disk=disk, clock=clock, random=random, new_helper=new_helper)
        with naming_port(self._port):
            await server.start()
        self._server, self._port = server, int(server.bootstrap_servers.rpartition(":")[2])
        self._watch = asyncio.get_running_loop().create_task(stop_when_failed(server))
        if self._interception.is_used:
            self._interception.install(server)
        return server

    async def _stop_server(self) -> BrokerServer | None:
        """Stop the server that runs and return it; None if there is none."""
        server, self._server = self._server, None
        watch, self._watch = self._watch, None
        if server is not None and watch is not None:
            await stop(server, watch)
        return server

    async def stop(self) -> None:
        """Stop as on SIGTERM: acknowledged records are on disk, a temporary directory is removed.

        Raises RuntimeError if the broker had failed and stopped by itself; raises the error of a stop that fails.
        """
        registry, self._registry = self._registry, None
        try:
            try:
                if registry is not None:
                    await asyncio.to_thread(registry.stop)
            finally:
                server = await self._stop_server()
        finally:
            self._clean_up()
        if server is not None:
            check_not_failed(server)

    async def __aenter__(self) -> Self:
        return await (asyncio.to_thread(self.__enter__) if self._is_virtual else self.start())

    async def __aexit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if self._thread is not None:  # a virtual clock
            await asyncio.to_thread(self.__exit__, kind, *about)
            return
        await self.stop()
        if kind is None:
            self._interception.check_hit()

    def __enter__(self) -> Self:
        self._check_not_running()
        self._thread = LoopThread(self._new_virtual_loop() if self._is_virtual else None)
        try:
            self._thread.call(self.start)
        except BaseException:
            self._end_thread()
            raise
        atexit.register(self._stop_at_exit)
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        assert self._thread is not None
        if self._thread.is_of_parent:
            return
        atexit.unregister(self._stop_at_exit)
        try:
            self._thread.call(self.stop)
        finally:
            self._end_thread()
        if kind is None:
            self._interception.check_hit()

    def _new_virtual_loop(self) -> "VirtualLoop":
        from kafkapy.embedded.virtual_time import VirtualLoop

        self._virtual = VirtualLoop()
        return self._virtual

    def _end_thread(self) -> None:
        thread, self._thread, self._virtual = self._thread, None, None
        assert thread is not None
        thread.close()

    def _stop_at_exit(self) -> None:
        """Stop a broker whose `with` block did not end before the program. A failure cannot be reported to anyone."""
        with contextlib.suppress(Exception):
            self.__exit__(None)

    def _blocking(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine function on the broker's thread and wait for its end; return its result."""
        if self._thread is None:
            raise RuntimeError(NOT_RUNNING if self._directory is None else NOT_BLOCKING)
        return self._thread.call(function)

    @property
    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError(NOT_RUNNING if self._directory is None else "this broker was killed: restart it first")
        check_not_failed(self._server)
        return self._server

    def _log_warnings(self, found: Iterable[str]) -> None:
        """Log warnings about the configuration and the installation, except those that __init__ has given."""
        known = warnings_of_keys(self._properties)
        for warning in found:
            if warning not in known:
                logger.warning("%s", warning)

    def _check_not_running(self) -> None:
        if self._directory is not None:
            raise RuntimeError("this broker runs already")

    def _prepare_directory(self) -> str:
        if self._given_data_dir is not None:
            name = str(Path(self._given_data_dir).absolute())
        else:
            self._temporary = TemporaryDirectory()
            atexit.register(self._finish_io)  # after the directory's own registration: it is called before
            name = self._temporary.name
        if self._snapshot is not None:
            from kafkapy.embedded.snapshots import restore_snapshot

            restore_snapshot(self._snapshot, Path(name))
        return name

    def _is_temporary(self, config: "BrokerConfig") -> bool:
        """Whether nothing is kept after the end. The properties may name directories that are: log.dirs."""
        return self._temporary is not None and directories_of(config) == [self._temporary.name]

    def _clean_up(self) -> None:
        self._directory = None
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            atexit.unregister(self._finish_io)
            temporary.cleanup()

    def _finish_io(self) -> None:
        """Wait for the workers of a broker that is never stopped: they would write to a directory that is removed."""
        if self._server is not None:
            self._server.node.io_pool.close()


class NewKafkaBroker(Protocol):
    """What the fixture `new_kafka_broker` returns: it starts a broker that ends with the test."""

    def __call__(self, data_dir: "str | Path | None" = None, **options: "Unpack[BrokerOptions]") -> Broker:
        """Return a running broker. The arguments are those of `Broker`."""
        ...
