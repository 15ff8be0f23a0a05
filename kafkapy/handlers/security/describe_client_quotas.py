"""DescribeClientQuotas 0-1: the quotas of the entities that a filter matches. KIP-546; v1: flexible."""

from collections.abc import Mapping

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.metadata.client_quotas import QuotaFilter
from kafkapy.metadata.image import QuotaEntity
from kafkapy.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from kafkapy.protocol.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        check_cluster(services, context, AclOperation.DESCRIBE_CONFIGS)
    except ApiError as error:
        return _refused(error.code, None)
    try:
        wanted = QuotaFilter(request)
    except ApiError as error:
        return _refused(error.code, error.message)
    quotas = services.metadata.image.client_quotas
    entries = [
        _entry(entity, quotas[entity])
        async for entity in walk(services, context).over(quotas)
        if wanted.matches(entity)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=entries)  # as Kafka answers


def _refused(error_code: int, message: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=int(error_code), error_message=message, entries=None)


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
