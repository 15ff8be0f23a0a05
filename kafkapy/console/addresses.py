"""Names and addresses in Host headers and options."""

import ipaddress


def host_name(host: str) -> str:
    """Return the name in `name:port` or `[address]:port`, in lower case, without brackets."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
