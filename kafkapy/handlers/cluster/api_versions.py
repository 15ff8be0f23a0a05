"""ApiVersions 0-5: the APIs and versions that this node serves.

Answered at any version: an unknown version gets a version 0 body with UNSUPPORTED_VERSION and the row of ApiVersions
itself (KIP-511). The response header is always version 0.
v3: client software name and version (validated; INVALID_REQUEST), features in tagged fields. v4: also lists features
whose minimum is 0, which v3 clients cannot read (KIP-1022). v5, as in Apache Kafka 4.4.0: the cluster and the node that
the client takes this for, both or neither (else INVALID_REQUEST); a broker that is another one answers
REBOOTSTRAP_REQUIRED, so that a client with a stale address looks for the cluster again (KIP-1242).

Of APIs whose requests are forwarded, a broker that is connected to an active controller elsewhere lists the versions
that both have (KIP-590).

Clients ask on each connection, and 60 rows take longer than the rest of a login: the encoded response is kept until the
metadata or the controller changes.
"""

import re
from collections.abc import Mapping
from typing import Final

from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.handlers.encoded_responses import EncodedResponse
from kafkapy.handlers.table import BROKER_APIS, Forwarding, ServedApi
from kafkapy.metadata.features import shown_features
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NO_NODE: Final = -1
SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse | EncodedResponse:
    if context.api_version >= 3:
        if not _is_valid_client(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if request.cluster_id is not None and isinstance(services, Services) and _is_another(services, request):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        context.connection.software_name = request.client_software_name
        context.connection.software_version = request.client_software_version
    if context.meter is not None:  # it sets the response's throttle time
        return _response(services, context.api_version)
    image, responses = services.metadata.image, services.version_responses
    controller = _controller_versions(services)
    shown = (image.provenance.last_offset, image.features, services.quorum.finalized_kraft_version, controller)
    found = responses.find(shown, context.api_version)
    if found is not None:
        return found
    return responses.keep(context.api_version, _response(services, context.api_version))


def _response(services: Services | ControllerServices, version: int) -> ApiVersionsResponse:
    response = ApiVersionsResponse(api_keys=[_row(served) for served in services.apis.values()])
    controller = _controller_versions(services)
    if controller is not None:
        response.api_keys = [row for row in response.api_keys if _fit_to(controller, row)]
    # Without a receiver of metrics clients are not to ask for subscriptions: Kafka hides both APIs, too.
    if services.apis is BROKER_APIS and services.telemetry is None:
        response.api_keys = [row for row in response.api_keys if not BROKER_APIS[row.api_key].is_telemetry]
    if services.apis is BROKER_APIS and services.config.node.serves_removed_versions:
        for row in response.api_keys:
            if BROKER_APIS[row.api_key].has_legacy:
                row.min_version = 0
    imitated = services.config.node.kafkapy_imitated_release if services.apis is BROKER_APIS else None
    if imitated is not None:
        from kafkapy.handlers import imitated as older

        ranges = older.ranges_of(imitated)
        if ranges is not None:
            response.api_keys = [row for row in response.api_keys if _reduced(row, ranges)]
        if imitated in older.WITHOUT_FEATURES:
            return response
    _add_features(services, response, with_zero_minimum=version >= 4)
    if imitated is not None:
        older.narrow_features(response, imitated)
    return response


def _controller_versions(services: Services | ControllerServices) -> dict[int, tuple[int, int]] | None:
    """Return the versions of an active controller elsewhere, None without one or if they are not known."""
    return None if isinstance(services, ControllerServices) else services.active_controller.api_versions


def _fit_to(controller: dict[int, tuple[int, int]], row: ApiVersion) -> bool:
    """Reduce a row to the versions that the controller has, too, if its requests are forwarded; False if none is."""
    if BROKER_APIS[row.api_key].forwarding is Forwarding.NONE:
        return True
    return _reduced(row, controller)


def _reduced(row: ApiVersion, ranges: Mapping[int, tuple[int, int]]) -> bool:
    """Reduce a row to these versions of its API; False if none is left."""
    lowest, highest = ranges.get(row.api_key, (0, -1))
    row.min_version, row.max_version = max(row.min_version, lowest), min(row.max_version, highest)
    return row.min_version <= row.max_version


def unsupported_version_response(served: ServedApi) -> ApiVersionsResponse:
    """Return the response to an unknown version, to be encoded in version 0. `served`: ApiVersions, as it is here."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(served)])


def _is_another(services: Services, request: ApiVersionsRequest) -> bool:
    """Whether the client means another broker than this one. Controllers do not ask, as in Apache Kafka."""
    return (request.cluster_id, request.node_id) != (services.cluster_id, services.node_id)


def _is_valid_client(request: ApiVersionsRequest) -> bool:
    return bool(
        (request.cluster_id is None) == (request.node_id == NO_NODE)
        and SOFTWARE_PATTERN.fullmatch(request.client_software_name)
        and SOFTWARE_PATTERN.fullmatch(request.client_software_version)
    )


def _row(served: ServedApi) -> ApiVersion:
    return ApiVersion(api_key=served.api_key, min_version=served.listed_min, max_version=served.max_version)


def _add_features(
    services: Services | ControllerServices, response: ApiVersionsResponse, *, with_zero_minimum: bool
) -> None:
    image = services.metadata.image
    features = shown_features(image, services.quorum.finalized_kraft_version)
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=levels.min_version, max_version=levels.max_version)
        for name, levels in features.supported.items()
        if with_zero_minimum or levels.min_version > 0
    ]
    response.finalized_features_epoch = image.provenance.last_offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.finalized.items()
    ]
