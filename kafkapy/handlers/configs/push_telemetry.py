"""PushTelemetry 0: the metrics that GetTelemetrySubscriptions requested from a client (KIP-714).

Listed and served only while there is a receiver, see kafkapy.runtime.client_telemetry. No right is needed.
INVALID_REQUEST: no instance id, or a push after the last one. THROTTLING_QUOTA_EXCEEDED: before the interval is over.
UNKNOWN_SUBSCRIPTION_ID: the subscription has changed. UNSUPPORTED_COMPRESSION_TYPE. TELEMETRY_TOO_LARGE: more than
telemetry.max.bytes as sent. INVALID_RECORD: more than that decompressed, or not readable.
"""

from kafkapy.handlers.configs.get_telemetry_subscriptions import attributes_of
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.messages.push_telemetry_request import PushTelemetryRequest
from kafkapy.protocol.messages.push_telemetry_response import PushTelemetryResponse
from kafkapy.telemetry.instances import Push


async def handle(services: Services, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    telemetry = services.telemetry
    assert telemetry is not None, "served only with a receiver"
    instance = telemetry.instances.push(
        request.client_instance_id,
        context.connection_id,
        attributes_of(context),
        services.clock.monotonic_ms(),
        Push(request.subscription_id, request.compression_type, len(request.metrics), is_last=request.terminating),
        telemetry.max_bytes,
    )
    if request.metrics:
        await telemetry.receive(
            instance,
            request.metrics,
            request.compression_type,
            heavy_work=services.heavy_work,
            way=walk(services, context),
        )
    return PushTelemetryResponse()
