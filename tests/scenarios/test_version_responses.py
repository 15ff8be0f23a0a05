"""ApiVersions is encoded once for many connections: each must see what holds when it asks."""

import pytest

from kafkapy import Broker
from kafkapy.handlers.encoded_responses import VersionResponses
from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours
REQUEST = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def versions(broker: Broker, version: int) -> ApiVersionsResponse:
    with WireClient(broker.bootstrap_servers) as client:
        found: ApiVersionsResponse = client.call(REQUEST, version)
        return found


@pytest.mark.parametrize("version", range(5))
def test_each_connection_gets_the_same_response(version: int) -> None:
    with Broker() as broker:
        first, second = versions(broker, version), versions(broker, version)
    assert first.error_code == 0
    assert [each.api_key for each in first.api_keys] == [each.api_key for each in second.api_keys]
    assert len(first.api_keys) > 50
    assert bool(first.supported_features) == (version >= 3)


def test_a_response_follows_the_finalized_features() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        before = versions(broker, 4)
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        assert client.call(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0
        after = versions(broker, 4)
    assert "group.version" in {each.name for each in before.finalized_features}
    assert "group.version" not in {each.name for each in after.finalized_features}
    assert after.finalized_features_epoch > before.finalized_features_epoch


def test_the_epoch_follows_each_change_of_the_metadata() -> None:
    with Broker() as broker:
        before = versions(broker, 3)
        broker.create_topics("one")
        assert versions(broker, 3).finalized_features_epoch > before.finalized_features_epoch


def test_a_throttled_client_gets_its_throttle_and_others_none() -> None:
    quota = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="slow")],
        ops=[OpData(key="request_percentage", value=0.00001)],  # a microsecond in ten seconds
    )
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        versions(broker, 3)
        assert client.call(AlterClientQuotasRequest(entries=[quota]), 1).entries[0].error_code == 0
        slow = client.call(REQUEST, 3, client_id="slow")
        assert slow.throttle_time_ms > 0
        assert versions(broker, 3).throttle_time_ms == 0


def test_responses_are_dropped_with_the_features_they_were_made_for() -> None:
    responses = VersionResponses()
    assert responses.find((1, "a"), 3) is None
    kept = responses.keep(3, ApiVersionsResponse())
    assert responses.find((1, "a"), 3) is kept
    assert responses.find((1, "a"), 4) is None
    assert responses.find((2, "a"), 3) is None
    assert responses.find((1, "a"), 3) is None
