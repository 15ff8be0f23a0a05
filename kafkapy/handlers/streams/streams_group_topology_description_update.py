"""StreamsGroupTopologyDescriptionUpdate 0: the description of a topology, for a plug-in that keeps it. KIP-1331.

There are no plug-ins here: it is answered as Apache Kafka does without group.streams.topology.description.plugin.class.
"""

from typing import NoReturn

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.streams.gate import is_protocol_enabled
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from kafkapy.security.authorizer import AclOperation, ResourceType

NO_PLUGIN = "The broker has no streams group topology description plugin configured."


async def handle(
    services: Services, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> NoReturn:
    if not is_protocol_enabled(services):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, NO_PLUGIN)
