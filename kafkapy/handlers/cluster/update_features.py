"""UpdateFeatures 0-2: raise or lower the levels of features, all of a request or none (KIP-584, KIP-778).

Needs ALTER on the cluster. v1: dry run, and upgrade types, which replace the flag allow_downgrade. v2: no results by
feature. Deviation: Apache Kafka takes every level that it knows. Here those that are not implemented yet are refused as
unsupported, because clients act on them.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.image import KRAFT_VERSION
from kafkapy.protocol.messages.update_features_request import UpdateFeaturesRequest
from kafkapy.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from kafkapy.security.authorizer import AclOperation

FAILED = "The update failed for all features since the following feature had an error: "
NO_ERROR = "NONE"
"""Apache Kafka's message for the success of a feature."""


async def handle(services: Services, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    check_cluster(services, context, AclOperation.ALTER)
    error = await _update(services, request)
    if error is not None:
        return _failure(error)
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= 1:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_message=NO_ERROR) for each in request.feature_updates
        ]
    return response


async def _update(services: Services, request: UpdateFeaturesRequest) -> ApiError | None:
    """Return the error of the whole request, or None. kraft.version is raised after all updates were validated."""
    quorum = services.quorum
    level = quorum.finalized_kraft_version
    if any(each.feature == KRAFT_VERSION and each.max_version_level > level for each in request.feature_updates):
        refusal = quorum.kraft_upgrade_refusal()
        checked = UpdateFeaturesRequest(feature_updates=request.feature_updates, validate_only=True)
        error = await services.metadata_changes.change(
            lambda controller, _: controller.feature_updates.decide_update(
                checked, kraft_version=level, kraft_refusal=refusal
            )
        )
        if error is not None or request.validate_only:
            return error
        await quorum.upgrade_kraft_version()
    return await services.metadata_changes.change(
        lambda controller, _: controller.feature_updates.decide_update(
            request, kraft_version=quorum.finalized_kraft_version
        )
    )


def _failure(error: ApiError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=int(error.code), error_message=f"{FAILED}{error.message}")
