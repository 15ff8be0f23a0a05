"""kafka-configs.sh with the entity types that have quotas: what it sets, prints and removes, the same of both."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.quotas import remove_quotas

Configs = Callable[..., list[str]]

BOTH = ("--entity-type", "users", "--entity-name", "tool", "--entity-type", "clients", "--entity-default")
CLIENT = ("--entity-type", "clients", "--entity-name", "app")


@pytest.fixture
def configs(java_tool, bootstrap: str) -> Iterator[Configs]:
    """Run the tool; the lines that it prints."""

    def run(*arguments: str) -> list[str]:
        output: str = java_tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, *arguments)
        return [line.rstrip() for line in output.splitlines() if line.strip()]

    yield run
    remove_quotas(bootstrap)


def test_quotas_of_users_and_clients(configs: Configs) -> None:
    done = configs("--alter", *BOTH, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    assert done == ["Completed updating config for user tool."]
    configs("--alter", *CLIENT, "--add-config", "consumer_byte_rate=2048")
    assert configs("--describe", *BOTH) == [
        "Quota configs for user-principal 'tool', the default client-id are request_percentage=12.5, "
        "producer_byte_rate=1024.0"
    ]
    assert configs("--describe", "--entity-type", "clients") == [
        "Quota configs for client-id 'app' are consumer_byte_rate=2048.0"
    ]
    configs("--alter", *BOTH, "--delete-config", "producer_byte_rate")
    assert configs("--describe", *BOTH) == [
        "Quota configs for user-principal 'tool', the default client-id are request_percentage=12.5"
    ]


def test_quotas_of_ips(configs: Configs) -> None:
    assert configs("--alter", "--ip", "10.9.8.7", "--add-config", "connection_creation_rate=7") == [
        "Completed updating config for ip 10.9.8.7."
    ]
    configs("--alter", "--ip-defaults", "--add-config", "connection_creation_rate=70")
    assert sorted(configs("--describe", "--entity-type", "ips")) == [
        "Quota configs for ip '10.9.8.7' are connection_creation_rate=7.0",
        "Quota configs for the default ip are connection_creation_rate=70.0",
    ]
