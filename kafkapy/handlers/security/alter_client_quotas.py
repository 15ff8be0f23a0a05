"""AlterClientQuotas 0-1: set and remove the quotas of users, client-ids and ips, each entity with a result.

KIP-546; v1: flexible. With validate_only nothing changes.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.metadata.client_quotas import EntityResult
from kafkapy.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from kafkapy.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    try:
        check_cluster(services, context, AclOperation.ALTER_CONFIGS)
        results = await services.metadata_changes.change(
            lambda controller, _: controller.client_quotas.decide_alter(request)
        )
    except ApiError as error:
        return AlterClientQuotasResponse(entries=_refused(request, ApiError(error.code)))
    return AlterClientQuotasResponse(entries=[_entry(each) for each in results])


def _entry(result: EntityResult) -> EntryData:
    return EntryData(
        error_code=int(result.error.code) if result.error else 0,
        error_message=result.error.message if result.error else None,
        entity=[EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in result.entity],
    )


def _refused(request: AlterClientQuotasRequest, error: ApiError) -> list[EntryData]:
    entities = [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in request.entries]
    return [_entry(EntityResult(entity, error)) for entity in entities]
