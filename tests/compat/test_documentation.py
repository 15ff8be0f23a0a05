"""DescribeConfigs tells what keys mean, in words of our own."""

import re
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from harness.servers import Kafkapy, Server
from kafkapy.config.rules import BROKER, TOPIC
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.quick_kafka import QuickKafka
from tests.support.wire import WireClient

RUN = 8
"""So many words in a row are a sentence of somebody's."""


def texts(server: Server) -> dict[tuple[int, str], str]:
    """Return the documentation of each key of the broker and of a topic."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("documented", 1)])["documented"].result(60)
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((BROKER, "1"), (TOPIC, "documented"))
    ]
    with WireClient(server.bootstrap) as client:
        response = client.call(DescribeConfigsRequest(resources=resources, include_documentation=True), 4)
    return {
        (result.resource_type, config.name): config.documentation
        for result in response.results
        for config in result.configs
    }


def runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[index : index + RUN]) for index in range(len(words) - RUN + 1)}


def test_each_key_that_apache_kafka_documents_is_documented_in_other_words(tmp_path: Path) -> None:
    def described(kind: Callable[..., Server]) -> dict[tuple[int, str], str]:
        with kind(tmp_path / kind.__name__) as server:
            return texts(server)

    theirs, ours = described(QuickKafka), described(Kafkapy)
    documented = {key for key, text in theirs.items() if text}
    assert len(documented) > 300
    assert documented <= {key for key, text in ours.items() if text}
    assert {key for key in documented if runs(theirs[key]) & runs(ours[key])} == set()
