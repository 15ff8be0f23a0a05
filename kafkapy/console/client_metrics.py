"""The metrics that clients have pushed (KIP-714), by client instance: kafkapy_client_... of the brokers' /metrics.

A broker shows at most 10,000 series. Names and values are the clients' own, and not to be trusted.
"""

import re
from collections.abc import Iterable
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass

PREFIX: Final = "kafkapy_client_"
INFO: Final = "kafkapy_client_info"
OF_THE_BROKER: Final = ("kafkapy_client_telemetry_", "kafkapy_client_instances")
MAX_CLIENTS: Final = 1_000
"""Clients, each a row of a page; a broker keeps up to 16,384 (telemetry/instances.py)."""
_SERIES: Final = re.compile(PREFIX + r'(\w*)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\} (\S+)')
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


@dataclass(slots=True)
class Client:
    """One client instance and its metrics: (name, labels as text, value)."""

    instance_id: str
    attributes: dict[str, str] = field(default_factory=dict)
    values: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.attributes.get("client_id", "")


def is_of_clients(line: str) -> bool:
    """Return whether a line of /metrics is a client's."""
    return line.startswith(PREFIX) and not line.startswith(OF_THE_BROKER)


def clients_of(texts: Iterable[str]) -> dict[str, Client]:
    """Return the clients in the brokers' /metrics by instance id; of one that pushes to two brokers all values."""
    clients: dict[str, Client] = {}
    for text in texts:
        for line in text.split("\n"):  # splitlines would split at characters that a label may have, too
            if is_of_clients(line):
                _add(clients, line)
    return clients


def _add(clients: dict[str, Client], line: str) -> None:
    found = _SERIES.fullmatch(line)
    if found is None:
        return
    labels = {name: _ESCAPE.sub(_unescaped, value) for name, value in _LABEL.findall(found[2])}
    instance_id = labels.pop("client_instance_id", "")
    client = clients.get(instance_id)
    if client is None:
        if len(clients) >= MAX_CLIENTS:
            return
        client = clients[instance_id] = Client(instance_id)
    if line.startswith(INFO + "{"):
        client.attributes = labels
    else:
        labels.pop("client_id", None)
        shown = ", ".join(f"{name}={value}" for name, value in labels.items())
        client.values.append((found[1].replace("_", "."), shown, found[3]))


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
