"""GetTelemetrySubscriptions 0: which metrics a client is to push, and how often (KIP-714).

Listed and served only while there is a receiver, see kafkapy.runtime.client_telemetry. No right is needed. A client
without an instance id gets one. THROTTLING_QUOTA_EXCEEDED before the push interval is over, unless the subscription
has changed or the last push was refused for its subscription id or compression.
"""

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from kafkapy.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from kafkapy.telemetry.instances import COMPRESSIONS
from kafkapy.telemetry.subscriptions import Attributes


async def handle(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = services.telemetry
    assert telemetry is not None, "served only with a receiver"
    instance = telemetry.instances.subscribe(
        request.client_instance_id, context.connection_id, attributes_of(context), services.clock.monotonic_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=instance.requested.push_interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.requested.metrics),
    )


def attributes_of(context: RequestContext) -> Attributes:
    """Return the attributes by which subscriptions select clients, except the instance id."""
    connection = context.connection
    attributes = {
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }
    return attributes if context.client_id is None else {**attributes, "client_id": context.client_id}
