"""The keyword arguments of `Broker` and `Cluster`, typed: type checkers know them wherever they are passed on."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from kafkapy.errors import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from kafkapy.embedded.faults.faulty_disk import DiskState
    from kafkapy.embedded.security import EmbeddedSecurity
    from kafkapy.embedded.snapshots import Snapshot


class BrokerOptions(TypedDict, total=False):
    """The keyword arguments of `Broker`, which says what they mean."""

    port: int
    properties: Mapping[str, object] | None
    tls: bool
    users: Mapping[str, str] | None
    acls: Sequence[str] | None
    registry: bool
    version: str | None
    disk_faults: bool
    network_faults: bool
    clock: Literal["system", "virtual"]
    snapshot: "Snapshot | str | Path | None"


class ClusterOptions(TypedDict, total=False):
    """The keyword arguments of `Cluster`, which says what they mean."""

    controller_count: int
    properties: Mapping[str, object] | None
    in_process: bool
    tls: bool
    users: Mapping[str, str] | None
    acls: Sequence[str] | None
    registry: bool
    disk_faults: bool
    network_faults: bool
    clock: Literal["system", "virtual"]


BROKER_OPTIONS: Final = frozenset(BrokerOptions.__annotations__)
CLUSTER_OPTIONS: Final = frozenset(ClusterOptions.__annotations__)
MAX_PORT: Final = 65_535
"""The largest that TCP has."""


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


_SHAPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "port": (lambda value: is_count(value) and 0 <= value <= MAX_PORT, f"a number from 0 to {MAX_PORT}"),
    "controller_count": (is_count, "a number"),
    "properties": (lambda value: value is None or isinstance(value, Mapping), "a dict, as {'num.partitions': 3}"),
    "users": (
        lambda value: value is None or _is_texts_by_name(value),
        "a dict of passwords that are texts, as {'alice': 'secret'}",
    ),
    "acls": (lambda value: value is None or _is_list_of_texts(value), "a list, as ['allow alice read topic:orders']"),
    "version": (lambda value: value is None or isinstance(value, str), "a text, as '3.9'"),
    "snapshot": (lambda value: not isinstance(value, int), "a Snapshot, or the path of its directory"),
}
"""By argument: whether a value can be meant, and what would be. Without a type checker nothing else says so."""
SECRETS: Final = ("users", "properties")
"""Their values may have passwords, which no message shows."""


def check_options(kind: str, given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise TypeError for an unknown argument, or a value of a type that it cannot have."""
    for name in given:
        if name not in known:
            message = f"{kind}() has no argument {quoted(name)}: its keyword arguments are {', '.join(sorted(known))}"
            raise TypeError(message)
    for name, (is_possible, wanted) in _SHAPES.items():
        if name in given and not is_possible(given[name]):
            seen = "" if name in SECRETS else f", not {given[name]!r}"
            raise TypeError(f"{kind}({name}=...) is {wanted}{seen}")


def check_data_dir(kind: str, data_dir: object) -> None:
    """Raise TypeError for what is no path."""
    if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
        raise TypeError(f"{kind}(data_dir=...) is the path of a directory, not {data_dir!r}")


def release_named(version: str | None) -> str:
    """Return a release that a broker can look like. Raises ValueError for another one."""
    from kafkapy.config.releases import IMITATED

    if version not in IMITATED:
        raise ValueError(f"version={version!r}: a broker can look like {', '.join(IMITATED)}")
    return version


def properties_of(options: BrokerOptions) -> dict[str, str]:
    """Return Kafka's keys that `properties` and `version` ask for. Raises ValueError."""
    found = texts_of(options.get("properties"))
    if options.get("version") is not None:
        found["kafkapy.imitated.release"] = release_named(options["version"])
    return found


def texts_of(values: Mapping[str, object] | None) -> dict[str, str]:
    """Return the values of `properties` or `configs` as Kafka writes them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (values or {}).items()}


def security_of(options: BrokerOptions | ClusterOptions) -> "EmbeddedSecurity | None":
    """Return the security of `tls`, `users` and `acls`; None without any. Raises ValueError, AclTextError."""
    tls, users, acls = options.get("tls", False), options.get("users"), options.get("acls")
    if not tls and users is None and acls is None:
        return None
    if options.get("registry", False):
        from kafkapy.registry.embedded import with_user

        users, acls = with_user(users, acls)
    from kafkapy.embedded.security import EmbeddedSecurity  # imports cryptography

    return EmbeddedSecurity(tls=tls, users=users, acls=acls)


def client_config(
    security: "EmbeddedSecurity | None", bootstrap_servers: str, user: str | None, mechanism: str
) -> dict[str, str]:
    """Return the properties of a librdkafka client. Raises ValueError for an unknown user or mechanism."""
    if security is not None:
        return security.client_config(bootstrap_servers, user, mechanism)
    if user is not None:
        raise ValueError("there are no users: users={'alice': 'secret'} makes some")
    return {"bootstrap.servers": bootstrap_servers}


def disk_state_of(options: BrokerOptions) -> "DiskState | None":
    """Return the disk of `disk_faults`; None without it."""
    if not options.get("disk_faults"):
        return None
    from kafkapy.embedded.faults.faulty_disk import DiskState

    return DiskState()


def is_virtual(options: BrokerOptions | ClusterOptions) -> bool:
    """Return whether `clock` asks for a virtual one. Raises ValueError."""
    clock = options.get("clock", "system")
    if clock not in ("system", "virtual"):
        raise ValueError(f"clock is 'system' or 'virtual', not {quoted(str(clock))}")
    return clock == "virtual"


def snapshot_of(options: BrokerOptions) -> "Snapshot | None":
    """Return the snapshot that `snapshot` names. Raises SnapshotError."""
    given = options.get("snapshot")
    if given is None:
        return None
    from kafkapy.embedded.snapshots import Snapshot

    return given if isinstance(given, Snapshot) else Snapshot(given)
