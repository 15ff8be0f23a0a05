"""Names and addresses in Host headers and options."""

import ipaddress
from urllib.parse import urlsplit


def host_name(host: str) -> str:
    """Return the name in `name:port` or `[address]:port`, in lower case, without brackets; "" if it is neither."""
    if not host.startswith("["):
        return host.partition(":")[0].lower()
    address, bracket, rest = host[1:].partition("]")
    has_port = rest.startswith(":") and rest[1:].isdecimal()
    return address.lower() if bracket and (not rest or has_port) else ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def is_private_url(url: str) -> bool:
    """Return whether no host on the way can read the traffic: https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
