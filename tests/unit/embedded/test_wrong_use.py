"""Wrong use that a type checker would find: the error names the argument, and what would be right."""

from typing import Any

import pytest

from kafkapy.testing import Broker, Cluster, ObservationError

MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"port": "9092"}, r"Broker\(port=...\) is a number from 0 to 65535, not '9092'"),
    ({"port": 99_999}, "is a number from 0 to 65535, not 99999"),
    ({"properties": ["num.partitions=3"]}, "is a dict, as {'num.partitions': 3}$"),
    ({"users": ["alice"]}, "is a dict of passwords that are texts, as {'alice': 'secret'}$"),
    ({"users": {"alice": 5, "bob": "secret of bob"}}, "is a dict of passwords that are texts, as {'alice': 'secret'}$"),
    (
        {"users": {"a": "b"}, "acls": "allow a all topic:x"},
        "is a list, as \\['allow alice read topic:orders'\\], not 'allow",
    ),
    ({"version": 3.9}, "is a text, as '3.9', not 3.9"),
    ({"snapshot": 5}, "is a Snapshot, or the path of its directory, not 5"),
    ({"data_dir": 5}, "is the path of a directory, not 5"),
]


@pytest.mark.parametrize(("options", "text"), MISUSES)
def test_an_argument_that_cannot_be_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        Broker(**options)


def test_an_argument_of_a_cluster_that_cannot_be_is_named() -> None:
    with pytest.raises(TypeError, match=r"Cluster\(broker_count\) is a number, not '3'"):
        Cluster("3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Cluster\(controller_count=...\) is a number, not None"):
        Cluster(3, controller_count=None)  # type: ignore[arg-type]


def test_a_cluster_is_not_begun_twice() -> None:
    with Cluster(1, in_process=True) as cluster:
        with pytest.raises(RuntimeError, match="this cluster runs already"):
            cluster.__enter__()
        cluster.create_topics("orders")


def test_names_that_are_no_texts_are_refused(kafka_broker: Broker) -> None:
    with pytest.raises(TypeError, match=r"topics are created by name: create_topics\('orders', 'invoices'\), not of"):
        kafka_broker.create_topics(["orders", "invoices"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a topic has a name, as topics\['orders'\], not 5"):
        kafka_broker.topics[5]  # type: ignore[index]
    with pytest.raises(TypeError, match=r"a group has an id, as groups\['service'\], not None"):
        kafka_broker.groups[None]  # type: ignore[index]


def test_what_can_never_be_there_is_not_waited_for(own_kafka_broker: Broker) -> None:
    with pytest.raises(ObservationError, match=r"no group has the state 'Stble': there are Assigning, .*, Stable"):
        own_kafka_broker.groups["service"].wait_for_state("Stble")
    own_kafka_broker.requests.on()
    with pytest.raises(ObservationError, match="there is no error 'NOT_LEADER'; is it NOT_LEADER_OR_FOLLOWER"):
        own_kafka_broker.requests.wait_for(1, "Produce", error="NOT_LEADER")
    with pytest.raises(ObservationError, match="no format is called avr: auto, text"):
        own_kafka_broker.topics["orders"].decoded(value="avr")
