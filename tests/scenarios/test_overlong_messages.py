"""Names of 32,767 bytes, the longest string of a field: the message about such a name is too long for its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.protocol.primitives import MessageStruct
from tests.support.authorization_script import Fields, request
from tests.support.wire import WireClient

UNKNOWN_SERVER_ERROR = -1
LONGEST = "x" * 32_767


def resource(kind: int, name: str, **fields: Any) -> Fields:
    return {"resource_type": kind, "resource_name": name, **fields}


CASES: list[tuple[str, int, Fields]] = [
    (
        "CreateTopics",
        7,
        {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in (LONGEST, "fine")]},
    ),
    ("DescribeProducers", 0, {"topics": [{"name": name, "partition_indexes": [0]} for name in (LONGEST, "orders")]}),
    ("ElectLeaders", 2, {"topic_partitions": [{"topic": name, "partitions": [0]} for name in (LONGEST, "orders")]}),
    ("DescribeConfigs", 4, {"resources": [resource(4, LONGEST), resource(2, "orders")]}),
    ("UpdateFeatures", 1, {"feature_updates": [{"feature": LONGEST, "max_version_level": 1, "upgrade_type": 1}]}),
    (
        "AlterClientQuotas",
        1,
        {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": name}], "ops": [{"key": key, "value": 1.0}]}
                for name, key in ((LONGEST, LONGEST), ("u", "producer_byte_rate"))
            ],
            "validate_only": True,
        },
    ),
]


ALTER_CONFIGS = pytest.param(
    "AlterConfigs",
    2,
    {"resources": [resource(4, LONGEST, configs=[]), resource(2, "orders", configs=[])]},
    marks=pytest.mark.ours,  # Apache Kafka never answers
)


def errors(response: Any) -> Iterator[tuple[int, str | None]]:
    """Yield code and message of the response, and of each part of it."""
    if isinstance(response, list):
        for each in response:
            yield from errors(each)
    elif isinstance(response, MessageStruct):
        if "error_code" in response.field_names():
            yield response.error_code, getattr(response, "error_message", None)
        for name in response.field_names():
            yield from errors(getattr(response, name))


@pytest.mark.parametrize(("api", "version", "fields"), [*CASES, ALTER_CONFIGS])
def test_a_message_that_is_too_long_fails_the_request_and_the_connection_stays(
    client: WireClient, api: str, version: int, fields: Fields
) -> None:
    found = list(errors(client.call(request(api, fields), version)))
    assert found
    assert {code for code, _ in found} == {UNKNOWN_SERVER_ERROR}
    assert not any(LONGEST in (message or "") for _, message in found)
    assert client.call(request("ListGroups", {}), 5).error_code == 0
