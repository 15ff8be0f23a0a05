"""UpdateFeatures 0-2: raise or lower the levels of features, all of a request or none (KIP-584, KIP-778).

Needs ALTER on the cluster. v1: dry run, and upgrade types in place of a flag that says nothing any more. v2: no results
by feature. Deviation: levels of features that do not work here yet are refused as unsupported.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.update_features_request import UpdateFeaturesRequest
from kafkapy.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from kafkapy.security.authorizer import AclOperation

FAILED = "The update failed for all features since the following feature had an error: "
NO_ERROR = "NONE"
"""Apache Kafka tells of each feature's success in this word."""


async def handle(services: Services, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    check_cluster(services, context, AclOperation.ALTER)
    kraft_version = services.quorum.finalized_kraft_version
    error = await services.follower.change(
        lambda controller, _: controller.feature_updates.decide_update(request, kraft_version=kraft_version)
    )
    if error is not None:
        return _failure(error)
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= 1:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_message=NO_ERROR) for each in request.feature_updates
        ]
    return response


def _failure(error: ApiError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=int(error.code), error_message=f"{FAILED}{error.message}")
