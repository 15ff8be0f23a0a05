"""kafka-configs.sh with the entity types that have quotas."""

from tests.support.quotas import remove_quotas


def test_configs_command_sets_and_describes_quotas(java_tool, bootstrap):
    def configs(*arguments: str) -> str:
        return java_tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *arguments)

    both = ["--entity-type", "users", "--entity-name", "tool", "--entity-type", "clients", "--entity-default"]
    configs("--alter", *both, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    described = configs("--describe", "--entity-type", "users", "--entity-name", "tool", "--entity-type", "clients")
    assert "Quota configs for user-principal 'tool', the default client-id are " in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    configs("--alter", "--ip", "10.9.8.7", "--add-config", "connection_creation_rate=7")
    described = configs("--describe", "--entity-type", "ips")
    assert "Quota configs for ip '10.9.8.7' are connection_creation_rate=7.0" in described
    remove_quotas(bootstrap)
