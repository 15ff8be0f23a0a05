"""Sets a group's own configuration through a WireClient."""

from typing import Final

from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.wire import WireClient

GROUP_RESOURCE: Final = 32


def set_group_configs(client: WireClient, group_id: str, **configs: str) -> None:
    """Set share.auto.offset.reset and others of a group, written with _ for each dot."""
    altered = [AlterableConfig(key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(GROUP_RESOURCE, resource_name=group_id, configs=altered)
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result
