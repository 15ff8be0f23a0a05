"""The config APIs beside Apache Kafka 4.3.1: golden/configs.json.gz is a session with a real broker, step by step.

Each step is a request and what Kafka answered; ours must say the same to the same configuration. The four messages that
we word differently are named in REWORDED.
"""

import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cryptography.hazmat.primitives.serialization.pkcs12  # noqa: F401 - so that no handler waits for it
import pytest

from kafkapy.config import facts
from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.load import load
from kafkapy.config.rules import DynamicConfigRules
from kafkapy.errors import ApiError
from kafkapy.handlers.configs import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from kafkapy.machine import Decided
from kafkapy.metadata.bootstrap import decide_activation, default_bootstrap_records
from kafkapy.metadata.configs import CLUSTER_DEFAULT
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import EMPTY_IMAGE, RESOURCE_BROKER, MetadataImage, Provenance
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_configs_request import AlterableConfig as LegacyConfig
from kafkapy.protocol.messages.alter_configs_request import AlterConfigsRequest
from kafkapy.protocol.messages.alter_configs_request import AlterConfigsResource as LegacyResource
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_configs_response import DescribeConfigsResponse
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.runtime.turns import Turns
from kafkapy.security.authorizer import AclOperation, AllowAll, ResourceType
from tests.simulator.loop import SimLoop
from tests.support.controllers import end_of

SESSION = json.loads(gzip.decompress(Path("tests/golden/configs.json.gz").read_bytes()))
TOPIC, BROKER, LOGGER = 2, 4, 8
UNKNOWN_TYPE = 77
SET, DELETE, APPEND, SUBTRACT = range(4)

REWORDED = {
    "Dynamic thread count update": "Kafka wraps its reason in a class name",
    "Log cleaner threads": "Kafka wraps its reason in a class name",
    "/ by zero": "Kafka divides by the number of cleaner threads",
    "requirement failed: ": "Scala's word for a broken rule",
    " to group.": "4.4.0 names the range, 4.3.1 the key that bounds it",
}


class DenyAll:
    def authorize(self, *question: object, **manner: object) -> bool:
        return False


class CountingRandom:
    def uuid(self) -> bytes:
        return bytes(15) + b"\7"

    def randrange(self, start: int, stop: int) -> int:
        return start


class OneNode:
    """A node as the handlers see it: its controller commits at once, its image follows."""

    def __init__(self, properties: dict[str, str]) -> None:
        # Kafka's listing of what was set is of values whose leading blanks the properties file has lost.
        config, _ = load({key: text.lstrip() for key, text in properties.items()})
        self.node_id = config.node_id
        self.dynamic_config = DynamicConfig(config)
        self.authorizer: Any = AllowAll()
        self.turns = Turns()
        self.clock = SimpleNamespace(monotonic_ms=lambda: 0)
        self.metadata = SimpleNamespace(image=EMPTY_IMAGE)
        self.metadata_changes = SimpleNamespace(change=self.write)
        self.active_controller = SimpleNamespace(is_local=True)
        self.tables = Controller(
            node_id=config.node_id,
            cluster_id="c",
            rules=DynamicConfigRules(self.dynamic_config),
            random=CountingRandom(),
        )
        self.topic_count = 0
        self.replay(decide_activation(default_bootstrap_records(), is_log_empty=True, is_in_transaction=False).records)
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="h", port=1, security_protocol=0)
        self.replay([RegisterBrokerRecord(broker_id=3, broker_epoch=1, end_points=[endpoint], fenced=False)])

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def replay(self, records: list[Any]) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            self.tables.replay(record, self.tables.next_offset)
            delta.replay(record)
        self.metadata.image = delta.apply(Provenance(self.tables.next_offset - 1, 1, 0))
        configs = self.image.configs
        self.dynamic_config.update(cluster=configs.of(*CLUSTER_DEFAULT), broker=configs.of(RESOURCE_BROKER, "3"))

    async def write(self, decide: Callable[[Controller, int], Decided[Any, Any]]) -> Any:
        decision = end_of(decide(self.tables, 0))
        self.replay(decision.records)
        return decision.response

    def create_topic(self, name: str, configs: dict[str, str]) -> list[Any]:
        try:
            records = self.tables.configs.records_for_new_topic(name, configs)
        except ApiError as error:
            return [[name, error.code, error.message, []]]
        self.topic_count += 1
        topic_id = bytes(15) + bytes([self.topic_count])
        partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[3], isr=[3], leader=3)
        self.replay([TopicRecord(name=name, topic_id=topic_id), partition, *records])
        rows = [
            [row.name, row.value, row.is_read_only, row.source, row.is_sensitive]
            for row in self.tables.configs.effective_topic_configs(configs)
        ]
        return [[name, 0, None, sorted(rows)]]


def run(coroutine: Any) -> Any:
    """Drive a handler that does not really wait."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the handler waits for something")


def context(api_version: int = 1) -> Any:
    return SimpleNamespace(
        api_version=api_version, listener_name="PLAINTEXT", principal=None, client_host="h", meter=None
    )


def incremental(node: Any, resources: list[Any], validate_only: bool = False) -> list[Any]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    response = run(incremental_alter_configs.handle(node, context(), request))
    return [[row.error_code, row.error_message, row.resource_type, row.resource_name] for row in response.responses]


def legacy(node: Any, resources: list[Any], validate_only: bool = False) -> list[Any]:
    request = AlterConfigsRequest(
        resources=[
            LegacyResource(
                resource_type=kind,
                resource_name=name,
                configs=[LegacyConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    response = run(alter_configs.handle(node, context(), request))
    return [[row.error_code, row.error_message, row.resource_type, row.resource_name] for row in response.responses]


def describe(node: Any, resources: list[Any], include_synonyms: bool = True) -> list[Any]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        include_synonyms=include_synonyms,
    )
    response = run(describe_configs.handle(node, context(), request))
    return [
        {
            "error_code": result.error_code,
            "error_message": result.error_message,
            "resource": [result.resource_type, result.resource_name],
            "configs": sorted(_row(config) for config in result.configs if config.name not in OWN_KEYS),
        }
        for result in response.results
    ]


def _row(config: Any) -> list[Any]:
    synonyms = [[synonym.name, synonym.value, synonym.source] for synonym in config.synonyms]
    flags = [config.read_only, config.config_source, config.is_sensitive, config.config_type]
    return [config.name, config.value, *flags, synonyms]


def listed(node: Any, resource_types: list[int], api_version: int = 1) -> list[Any]:
    request = ListConfigResourcesRequest(resource_types=resource_types)
    response = run(list_config_resources.handle(node, context(api_version), request))
    return [response.error_code, sorted([row.resource_type, row.resource_name] for row in response.config_resources)]


def create(node: OneNode, name: str, configs: dict[str, str]) -> list[Any]:
    return node.create_topic(name, configs)


OWN_KEYS = {line.split(" | ")[0] for line in facts.OWN.strip().splitlines()}
STEPS: dict[str, Callable[..., Any]] = {
    "create": create,
    "incremental": incremental,
    "legacy": legacy,
    "describe": describe,
    "list": listed,
}


OF_4_4_0 = (
    "errors.deadletterqueue.", "group.streams.assignors", "group.streams.rack.", "group.streams.topology.",
    "log.remote.copy.lag.", "max.decompressed.", "remote.copy.lag.", "sasl.oauthbearer.allow.", "streams.assignor.",
    "streams.rack.",
)  # fmt: skip
"""What the keys begin with that Apache Kafka 4.3.1, which answered the session, does not have."""


def without_later_keys(response: Any) -> Any:
    """Return a response without the configs of keys that came with Apache Kafka 4.4.0."""
    if isinstance(response, dict):
        return {key: without_later_keys(value) for key, value in response.items()}
    if not isinstance(response, list):
        return response
    return [without_later_keys(each) for each in response if not _is_later(each)]


def _is_later(entry: Any) -> bool:
    name = entry[0] if isinstance(entry, list) and entry else entry.get("name") if isinstance(entry, dict) else None
    return isinstance(name, str) and name.startswith(OF_4_4_0)


def reworded(ours: Any, kafkas: Any) -> Any:
    """Kafka's response, with our message where Kafka's is one of REWORDED or a mere null."""
    for mine, theirs in zip(ours, kafkas, strict=True) if isinstance(ours, list) else ():
        if isinstance(theirs, dict) and theirs["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            theirs["error_message"] = mine["error_message"]  # "": Kafka names no topic here
        elif isinstance(theirs, dict) and theirs["resource"][0] == UNKNOWN_TYPE:
            theirs["error_message"] = mine["error_message"]  # INVALID_REQUEST's own, which is not said so long here
        elif isinstance(theirs, list) and len(theirs) == 4 and any(text in str(theirs[1]) for text in REWORDED):
            theirs[1] = mine[1]
    return kafkas


def test_every_step_of_the_session_is_answered_as_kafka_did() -> None:
    node = OneNode(SESSION["properties"])
    for number, step in enumerate(SESSION["steps"]):
        name, *arguments = step["request"]
        ours = without_later_keys(STEPS[name](node, *arguments))
        assert ours == reworded(ours, step["response"]), f"step {number}: {step['request']}"


@pytest.fixture
def node() -> OneNode:
    return OneNode(SESSION["properties"])


def test_each_resource_is_authorized(node) -> None:
    node.create_topic("t", {})
    node.authorizer = DenyAll()
    topic, group, cluster = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
    changes = [[TOPIC, "t", []], [32, "g", []], [BROKER, "3", []], [LOGGER, "3", []], [16, "m", []]]
    expected = [topic, group, cluster, cluster, cluster]
    assert [row[0] for row in incremental(node, changes)] == expected
    assert [row["error_code"] for row in describe(node, [[*each[:2], None] for each in changes])] == expected
    assert [row[0] for row in legacy(node, [changes[0]])] == [topic]
    assert listed(node, [])[0] == cluster


def test_the_right_operation_is_authorized(node) -> None:
    questions: list[tuple[object, ...]] = []
    node.authorizer = SimpleNamespace(authorize=lambda _, *question: bool(questions.append(question)) or True)
    describe(node, [[TOPIC, "t", None]])
    incremental(node, [[BROKER, "", []]])
    assert questions == [
        (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t"),
        (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster"),
    ]


def test_one_bad_resource_does_not_keep_the_others_from_changing(node) -> None:
    node.create_topic("a", {})
    node.create_topic("b", {})
    responses = incremental(
        node, [[TOPIC, "a", [["retention.ms", SET, "x"]]], [TOPIC, "b", [["retention.ms", SET, "5"]]]]
    )
    assert [row[0] for row in responses] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert node.image.configs.of(TOPIC, "b") == {"retention.ms": "5"}


def test_validate_only_changes_nothing(node) -> None:
    node.create_topic("a", {"retention.ms": "7"})
    incremental(node, [[TOPIC, "a", [["retention.ms", SET, "5"]]]], validate_only=True)
    legacy(node, [[TOPIC, "a", []]], validate_only=True)
    assert node.image.configs.of(TOPIC, "a") == {"retention.ms": "7"}


def test_the_same_broker_value_is_written_again(node) -> None:
    """KAFKA-14136: so that files behind the value are read anew."""
    incremental(node, [[BROKER, "", [["log.retention.ms", SET, "5000"]]]])
    before = node.tables.next_offset
    incremental(node, [[BROKER, "", [["log.retention.ms", SET, "5000"]]]])
    assert node.tables.next_offset == before + 1


def test_unknown_operation_is_refused(node) -> None:
    node.create_topic("a", {})
    assert incremental(node, [[TOPIC, "a", [["retention.ms", 9, "1"]]]])[0][:2] == [
        ErrorCode.INVALID_REQUEST,
        "Unknown operations type 9",
    ]


def test_controller_that_cannot_decide_fails_each_resource(node) -> None:
    async def refuse(_: object) -> None:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "no")

    node.metadata_changes.change = refuse
    assert legacy(node, [[TOPIC, "a", []], [TOPIC, "b", []]]) == [
        [ErrorCode.NOT_CONTROLLER, "no", TOPIC, "a"],
        [ErrorCode.NOT_CONTROLLER, "no", TOPIC, "b"],
    ]


def test_secrets_are_never_returned(node) -> None:
    (result,) = describe(node, [[BROKER, "3", None]])
    for secret in ("secret", "other"):
        assert f'"{secret}"' not in json.dumps(result)


def test_client_metrics_only_in_version_0(node) -> None:
    node.replay([ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="1000")])
    assert listed(node, [], api_version=0) == [0, [[16, "m"]]]


def test_levels_of_loggers_are_shown_and_set(node, restored_logger) -> None:
    assert incremental(node, [[LOGGER, "3", [[restored_logger, SET, "TRACE"]]]])[0][0] == ErrorCode.NONE
    (result,) = describe(node, [[LOGGER, "3", [restored_logger]]])
    assert result["configs"] == [[restored_logger, "TRACE", False, 6, False, 0, []]]


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        (["no.such", SET, "INFO"], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (
            ["root", SET, "LOUD"],
            ErrorCode.INVALID_CONFIG,
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (["root", DELETE, None], ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger"),
        (["root", APPEND, "INFO"], ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
    ],
)
def test_levels_that_cannot_be_set(node, operation, code, message) -> None:
    ((answered_code, answered_message, *_),) = incremental(node, [[LOGGER, "3", [operation]]])
    assert answered_code == code
    assert message in answered_message


@pytest.fixture
def restored_logger():
    import logging

    logger = logging.getLogger("kafkapy.test.levels")
    yield logger.name
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(("name", "ours"), [("state.change.logger", "kafkapy.replication"), ("kafka", "kafkapy")])
def test_loggers_have_kafkas_names_too(node, name: str, ours: str) -> None:
    assert incremental(node, [[LOGGER, "3", [[name, SET, "ERROR"]]]])[0][0] == ErrorCode.NONE
    (result,) = describe(node, [[LOGGER, "3", [name, ours]]])
    assert sorted(row[:2] for row in result["configs"]) == sorted([[name, "ERROR"], [ours, "ERROR"]])
    assert incremental(node, [[LOGGER, "3", [[name, DELETE, None]]]])[0][0] == ErrorCode.NONE
    assert logging.getLogger(ours).level == logging.NOTSET


@pytest.mark.parametrize("name", ["x", "9" * 5000])
def test_a_name_that_is_no_broker_id_is_refused(node, name: str) -> None:
    for kind in (BROKER, LOGGER):
        assert describe(node, [[kind, name, None]])[0]["error_code"] == ErrorCode.INVALID_REQUEST
        assert incremental(node, [[kind, name, []]])[0][0] == ErrorCode.INVALID_REQUEST


async def test_the_configs_of_a_response_are_bounded(loop: SimLoop, node) -> None:
    """A group has configs without being there. Those after the bound are refused; a client asks for them again."""

    async def describe(resources: list[DescribeConfigsResource]) -> list[Any]:
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        asker = context()
        asker.connection, asker.client = SimpleNamespace(), "c"
        return (await describe_configs.handle(node, asker, request)).results

    resources = [DescribeConfigsResource(resource_type=32, resource_name=str(number)) for number in range(20_000)]
    results = await describe(resources)
    described = [result for result in results if not result.error_code]
    assert len(described) > 5_000
    assert {result.error_code for result in results[len(described) :]} == {ErrorCode.INVALID_REQUEST}
    of_hundred = len(DescribeConfigsResponse(results=described[:100]).encode(4))
    assert 0.9 < of_hundred / 100 * len(described) / describe_configs.MAX_DESCRIBED_BYTES < 1.1
    again = resources[len(described) :][:5_000]
    assert not any(result.error_code for result in await describe(again))


async def test_resources_with_equal_configs_share_them_whichever_keys_are_requested(loop: SimLoop, node) -> None:
    """Else a response of many resources would be in memory as large as on the wire (shared_rows.py)."""
    keys = [[name] for name in ("consumer.session.timeout.ms", "share.record.lock.duration.ms")]
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=f"{number}", configuration_keys=keys[number % 2])
        for number in range(6)
    ]
    asker = context()
    asker.connection, asker.client = SimpleNamespace(), "c"
    found = (await describe_configs.handle(node, asker, DescribeConfigsRequest(resources=resources))).results
    assert [[row.name for row in each.configs] for each in found] == keys * 3
    assert len({id(each.configs) for each in found}) == 2


def test_no_resource_is_described_after_the_first_that_does_not_fit(node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the rows of 100,000 topics, each with its own configs, would be made to find that they do not fit."""
    monkeypatch.setattr(describe_configs, "MAX_DESCRIBED_BYTES", 2_000)
    results = describe(node, [[16, "small", None], [BROKER, "3", None], [16, "another", None]])
    assert [result["error_code"] for result in results] == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
