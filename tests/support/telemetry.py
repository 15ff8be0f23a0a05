"""Clients that push their own metrics (KIP-714): requests, subscriptions, and Apache Kafka with a receiver of them."""

import subprocess
from pathlib import Path
from typing import Any

from harness.servers import ApacheKafka
from kafkapy.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.push_telemetry_request import PushTelemetryRequest
from kafkapy.types import ZERO_UUID
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS

SOURCE = Path(__file__).with_name("TelemetryReceiver.java")
CLIENT_METRICS = 16
SET, DELETE = 0, 1


class ReceivingKafka(ApacheKafka):
    """Apache Kafka with a metrics reporter that receives clients' metrics. Compiled next to its directory."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(directory, {**(properties or {}), "metric.reporters": "TelemetryReceiver"})
        self._classes = Path(f"{directory}-classes")

    def prepare(self) -> None:
        super().prepare()
        command = ["javac", "-cp", f"{JAVA_LIBS}/*", "-d", str(self._classes), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("-cp") + 1
        command[at] += f":{self._classes}"
        return command


def send_request(client: WireClient, client_instance_id: bytes = ZERO_UUID, *, name: str = "wire") -> Any:
    return client.call(GetTelemetrySubscriptionsRequest(client_instance_id), 0, client_id=name)


def push(client: WireClient, requested: Any, metrics: bytes = b"", *, name: str = "wire", **fields: Any) -> int:
    """Push metrics as the response to `send_request` wants them; return the error code."""
    values = {
        "client_instance_id": requested.client_instance_id,
        "subscription_id": requested.subscription_id,
        **fields,
    }
    return int(client.call(PushTelemetryRequest(metrics=metrics, **values), 0, client_id=name).error_code)


def subscribe(client: WireClient, subscription: str, **configs: str | int | None) -> None:
    """Set keys of a subscription, underscores for dots; None removes one."""
    changes = [
        AlterableConfig(
            key.replace("_", "."),
            config_operation=DELETE if value is None else SET,
            value=None if value is None else str(value),
        )
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        [AlterConfigsResource(CLIENT_METRICS, resource_name=subscription, configs=changes)]
    )
    (response,) = client.call(request, 1).responses
    assert response.error_code == 0, response
