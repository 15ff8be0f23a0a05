"""`Broker(version="3.9")` lists what brokers of that release list: recorded by tools/record_release_versions.py."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kafkapy import Broker
from kafkapy.cli.connection import Connection
from kafkapy.handlers.imitated import VERSIONS
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest

RECORDED: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("release_versions.json").read_text())
BETWEEN_BROKERS: Final = {"2.8": {"4", "5", "6", "7", "56"}, "3.9": set()}
"""APIs between brokers and ZooKeeper's controllers, which docs/howto/older.md names."""


def test_the_releases_are_those_that_were_recorded() -> None:
    assert RECORDED.keys() == VERSIONS.keys()


@pytest.mark.parametrize("release", RECORDED)
def test_a_release_lists_what_its_broker_did(release: str) -> None:
    with Broker(version=release) as broker, Connection.to_any(broker.bootstrap_servers) as connection:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = connection.call(request, 3 if release == "2.8" else 4)
    listed = {str(each.api_key): f"{each.min_version}-{each.max_version}" for each in response.api_keys}
    recorded = RECORDED[release]["apis"]
    assert recorded.keys() - listed.keys() == BETWEEN_BROKERS.get(release, set())
    assert listed.keys() <= recorded.keys()
    assert {key: (found, recorded[key]) for key, found in listed.items() if found != as_here(key, recorded[key])} == {}
    assert {each.name: each.max_version_level for each in response.finalized_features} == RECORDED[release]["finalized"]
    supported = {each.name: f"{each.min_version}-{each.max_version}" for each in response.supported_features}
    lowest = {"metadata.version": "7-21"} if release == "3.9" else {}  # Kafka 4 reads no directory of lower levels
    assert supported == RECORDED[release]["supported"] | lowest


def as_here(key: str, versions: str) -> str:
    """Return recorded versions without those that Kafka 4 removed, and that are served nowhere here."""
    first, _, last = versions.partition("-")
    row = BROKER_APIS[int(key)]
    return versions if row.has_legacy else f"{max(int(first), row.listed_min)}-{last}"
