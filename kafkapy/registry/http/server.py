"""Serves the registry by uvicorn: in the foreground until a signal, or in a thread until stop()."""

import socket
import ssl
import threading
from typing import Any, Final

from kafkapy.dataclass import dataclass

STOP_S: Final = 2
KEEP_ALIVE_S: Final = 30
MAX_CONNECTIONS: Final = 500
"""Requests and connections at a time; further ones get 503."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. `client_ca`: clients must have a certificate of it. `ca`: of other registries' certificates."""

    certificate: str
    key: str
    client_ca: str | None = None
    ca: str | None = None

    def forwarding_context(self) -> ssl.SSLContext:
        """Return the TLS of requests to the leader, with this registry's certificate. Raises OSError."""
        context = ssl.create_default_context(cafile=self.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(self.certificate, self.key, "")
        return context


def new_server(app: Any, tls: Tls | None) -> Any:
    """Return a uvicorn.Server, which is not started."""
    import uvicorn

    options: dict[str, Any] = {}
    if tls is not None:
        options = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
        if tls.client_ca is not None:
            options |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=STOP_S,
            **options,
        )
    )


class ServerThread:
    """A server in a thread; the listening socket accepts connections before it runs."""

    def __init__(self, app: Any, listener: socket.socket, tls: Tls | None) -> None:
        self._server = new_server(app, tls)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="registry-http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import asyncio

        asyncio.run(self._server.serve(sockets=[self._listener]))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S + 1)
        self._listener.close()
