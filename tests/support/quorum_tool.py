"""What kafka-metadata-quorum tells of a quorum and changes in it, and whether the controllers make a topic."""

import re
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.java_tools import JavaTools


class QuorumTool:
    """kafka-metadata-quorum through one broker."""

    def __init__(self, tools: JavaTools, bootstrap: str) -> None:
        self._tools = tools
        self.bootstrap = bootstrap

    def run(self, *arguments: str, config: Path | None = None) -> str:
        with_config = [] if config is None else ["--command-config", str(config)]
        return self._tools.run(
            "kafka-metadata-quorum", "--bootstrap-server", self.bootstrap, *with_config, *arguments
        ).text

    def replicas(self) -> dict[int, tuple[str, str]]:
        """Return the directory id and the status (Leader, Follower, Observer) of each replica."""
        text = self.run("describe", "--replication")
        rows = re.findall(r"^(\d+)\s+(\S{22})\s+\d+\s+\d+\s+-?\d+\s+-?\d+\s+(\w+)", text, re.MULTILINE)
        found: dict[int, tuple[str, str]] = {}
        for node_id, directory, status in rows:  # voters first; a former directory is an observer for a while
            found.setdefault(int(node_id), (directory, status))
        return found

    def directory_of(self, node_id: int) -> str:
        """Return the id of a node's directory, "" while nobody tells of it."""
        return self.replicas().get(node_id, ("", ""))[0]

    def voters(self) -> list[int]:
        return sorted(node_id for node_id, (_, status) in self.replicas().items() if status != "Observer")

    def leader(self) -> int:
        """Return the leader's id, -1 if none is known."""
        return next((node_id for node_id, (_, status) in self.replicas().items() if status == "Leader"), -1)

    def add(self, server: Any) -> str:
        return self.run("add-controller", config=server.properties_file)

    def remove(self, node_id: int) -> str:
        """Return what is printed; VoterNotFound for a node that nobody knows any more."""
        directory = self.directory_of(node_id)
        if not directory:
            return "VoterNotFound"
        return self.run("remove-controller", "--controller-id", str(node_id), "--controller-directory-id", directory)


def is_created(admin: AdminClient, topic: str, partition_count: int = 1, replica_count: int = 1) -> bool:
    """Ask for the topic; an attempt whose answer was lost or late may have made it."""
    try:
        admin.create_topics([NewTopic(topic, partition_count, replica_count)])[topic].result(5)
    except TimeoutError:
        print(f"{topic}: no answer")
        return False
    except KafkaException as error:
        print(f"{topic}: {error}")
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True
