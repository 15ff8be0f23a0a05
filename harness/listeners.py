"""The keys of a node with several listeners, for tests and benchmarks."""

from collections.abc import Mapping

CONTROLLER = "CONTROLLER"


def listener_keys(
    ports: Mapping[str, int], protocols: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the keys for a listener at each of these ports.

    A listener is named after its security protocol, but for CONTROLLER (plaintext) and those in `protocols`.
    """
    spoken = {name: name for name in ports} | {CONTROLLER: "PLAINTEXT"} | dict(protocols or {})
    return {
        "listeners": ",".join(f"{name}://{host}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in spoken.items()),
    }


def node_keys(
    ports: Mapping[str, int], protocols: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the keys of a broker that is its own controller, with `listener_keys`, as in a server.properties."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": f"1@127.0.0.1:{ports[CONTROLLER]}",
        **listener_keys(ports, protocols, host),
    }
