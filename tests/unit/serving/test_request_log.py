"""kafka.request.logger at DEBUG, on a broker that runs in the test."""

import json
import logging
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.handlers.configs import shared_rows
from kafkapy.handlers.encoded_responses import EncodedResponse
from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import write_request_header, write_response_header
from kafkapy.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.primitives import SPLICE_BYTES, Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.serving.request_log import logged
from kafkapy.serving.request_logger import request_logger
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.wire import WireClient

KAFKAS_FIELDS = re.findall(
    r"\w+",
    "isForwarded requestHeader request response connection totalTimeMs requestQueueTimeMs localTimeMs remoteTimeMs "
    "throttleTimeMs responseQueueTimeMs sendTimeMs securityProtocol principal listener clientInformation",
)
SECRET = "of nobody's business"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "orders")
        request_logger.setLevel(logging.DEBUG)
        try:
            yield client
        finally:
            request_logger.setLevel(logging.NOTSET)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    messages = [each.getMessage() for each in caplog.records if each.name == "kafka.request.logger"]
    assert all(each.startswith("Completed request:{") for each in messages)
    return [json.loads(each.removeprefix("Completed request:")) for each in messages]


def test_a_line_has_kafkas_fields(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    client.call(MetadataRequest(topics=None), 12)
    (line,) = lines(caplog)
    assert list(line) == KAFKAS_FIELDS
    assert line["requestHeader"]["requestApiKeyName"] == "METADATA"
    assert line["request"]["topics"] is None
    assert [topic["name"] for topic in line["response"]["topics"]] == ["orders"]
    assert (line["listener"], line["principal"]) == ("PLAINTEXT", "User:ANONYMOUS")


def test_of_records_the_size_is_shown(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    produce(client, "orders", batch_of())
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    client.call(FetchRequest(topics=topics, max_wait_ms=1000, min_bytes=1, max_bytes=1000), 11)
    produced, fetched = lines(caplog)[-2:]
    (sent,) = produced["request"]["topicData"][0]["partitionData"]
    (received,) = fetched["response"]["responses"][0]["partitions"]
    assert "records" not in {*sent, *received}
    assert sent["recordsSizeInBytes"] == received["recordsSizeInBytes"] > 0


def test_secrets_are_not_logged(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    config = AlterableConfig(name="listener.name.a.plain.sasl.jaas.config", config_operation=0, value=SECRET)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    (line,) = lines(caplog)
    assert (line["request"], line["response"]) == ("", "")
    assert SECRET not in json.dumps(line)


def test_off_by_its_own_level_whatever_it_inherits(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    request_logger.setLevel(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        client.call(MetadataRequest(topics=None), 12)
    assert lines(caplog) == []


def test_an_unknown_version_of_api_versions_is_answered_all_the_same(
    broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    body = struct.pack(">hhih", 18, 99, 7, -1) + bytes(1)
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(10)[4:] == struct.pack(">ih", 7, ErrorCode.UNSUPPORTED_VERSION)
    (line,) = lines(caplog)
    assert (line["request"], line["requestHeader"]["requestApiVersion"]) == ("", 99)


def test_a_level_that_was_set_before_the_broker_was_imported_counts(tmp_path: Path) -> None:
    program = (
        "import logging; logging.getLogger('kafka.request.logger').setLevel(logging.DEBUG)\n"
        "from kafkapy.serving.request_logger import request_logger\n"
        "print(request_logger.is_on); request_logger.setLevel(logging.INFO); print(request_logger.is_on)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout == "True\nFalse\n"


WITH_SECRETS = {
    "AlterConfigs": 2,
    "AlterUserScramCredentials": 0,
    "CreateDelegationToken": 3,
    "DescribeDelegationToken": 3,
    "Envelope": 0,
    "ExpireDelegationToken": 2,
    "IncrementalAlterConfigs": 1,
    "RenewDelegationToken": 2,
    "SaslAuthenticate": 2,
}
"""Those of CVE-2026-33558, and the request that carries another."""


def test_a_handshake_shows_the_mechanism(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    (line,) = lines(caplog)
    assert line["request"] == {"mechanism": "PLAIN"}
    assert line["response"] == {"errorCode": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


async def line_of(
    key: int, version: int, write: Callable[[Writer], None], caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    """Return the line of a request without fields and the response that `write` appends."""
    asked = Writer()
    write_request_header(asked, api_key=key, api_version=version, correlation_id=1, client_id="a")
    request_type(key)().write(asked, version)
    response = Writer()
    write_response_header(response, key, version, 1)
    write(response)

    async def route(info: ConnectionInfo, frame: memoryview) -> Writer:
        return response

    caplog.set_level(logging.DEBUG, "kafka.request.logger")
    await logged(route, ConnectionInfo("a", "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1), memoryview(bytes(asked)))
    return lines(caplog)[-1]


@pytest.mark.parametrize("name", WITH_SECRETS)
async def test_neither_side_of_an_api_with_secrets_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    (key,) = (each.key for each in APIS.values() if each.name == name)
    version = WITH_SECRETS[name]
    line = await line_of(key, version, lambda out: response_type(key)().write(out, version), caplog)
    assert (line["request"], line["response"]) == ("", "")


@pytest.mark.parametrize("version", [1, 4])
async def test_configs_that_resources_share_are_logged(version: int, caplog: pytest.LogCaptureFixture) -> None:
    rows = [DescribeConfigsResourceResult("key", value="x" * 2_000)]
    results = [DescribeConfigsResult(resource_name=name, configs=rows) for name in ("first", "second")]
    response = DescribeConfigsResponse(results=results)
    line = await line_of(32, version, lambda out: shared_rows.write(out, response, version), caplog)
    results_shown = line["response"]["results"]
    assert [(each["resourceName"], len(each["configs"][0]["value"])) for each in results_shown] == [
        ("first", 2_000),
        ("second", 2_000),
    ]


async def test_metadata_that_clients_share_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    topics = [MetadataResponseTopic(name=f"topic-{number:04}", topic_id=bytes(16)) for number in range(900)]
    body = MetadataResponse(topics=topics).encode(8)
    assert len(body) >= SPLICE_BYTES
    line = await line_of(3, 8, lambda out: EncodedResponse(body).write(out, 8), caplog)
    assert len(line["response"]["topics"]) == 900
