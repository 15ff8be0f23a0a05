"""Topics made by librdkafka's admin client, asked for until the controller has made them."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.eventually import eventually

RESPONSE_S = 5


def create(bootstrap: str, *topics: str, partitions: int = 1, replicas: int = 1, **options: Any) -> None:
    """Create topics that do not exist yet. `replicas`: -1 for the broker's default. `options`: NewTopic's.

    A broker whose heartbeats a busy machine delayed is fenced for a while: fewer replicas than asked for are possible.
    """
    factor = {} if "replica_assignment" in options else {"replication_factor": replicas}
    for topic in topics:
        wanted = NewTopic(topic, partitions, **factor, **options)
        eventually(lambda wanted=wanted: is_created(bootstrap, wanted), what=f"the topic {topic}")


def is_created(bootstrap: str, topic: NewTopic) -> bool:
    """Ask for the topic; an attempt whose response was lost or late may have made it.

    Each attempt has a client of its own. Brokers name any broker as the controller, for some seconds also one that was
    killed; librdkafka waits for that one to come up, and asks for no other within topic.metadata.refresh.interval.ms.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        admin.create_topics([topic])[topic.topic].result(RESPONSE_S)
    except TimeoutError:
        print(f"{topic.topic}: no response")
        return False
    except KafkaException as error:
        print(f"{topic.topic}: {error}")
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True
