"""HOST:PORT, as it is typed and as it is shown: an IPv6 address has brackets."""

import argparse
from typing import Final

ANY_HOST: Final = ("0.0.0.0", "::")
"""A listener of these is reached at every address of its machine."""


def address(text: str, *, may_lack_host: bool = False) -> tuple[str, int]:
    """Return host and port of HOST:PORT, for argparse."""
    host, colon, port = text.rpartition(":")
    if not colon or host == "[]" or not (host or may_lack_host) or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} must read HOST:PORT")
    return host.strip("[]"), int(port)


def host_port(host: str, port: int | str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connectable(bound: str) -> str:
    """Return host:port for a client on this machine; a wildcard address becomes localhost."""
    host, _, port = bound.rpartition(":")
    host = host.strip("[]")
    return host_port("localhost" if host in ("", *ANY_HOST) else host, port)
