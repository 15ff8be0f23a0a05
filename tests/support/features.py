"""Reads and sets the finalized levels of a cluster's features through a WireClient."""

from typing import Final

from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.wire import WireClient

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2


def feature_levels(client: WireClient) -> dict[str, int]:
    """Return the level of each feature; one of level 0 is not among them."""
    response = client.call(ApiVersionsRequest("tests", client_software_version="1"), 4)
    return {each.name: each.max_version_level for each in response.finalized_features}


def set_feature_level(client: WireClient, feature: str, level: int, upgrade_type: int) -> None:
    update = FeatureUpdateKey(feature, max_version_level=level, upgrade_type=upgrade_type)
    response = client.call(UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=[update]), 2)
    assert response.error_code == 0, response
