"""What kafka-metadata-quorum tells of a quorum and changes in it."""

import re
from pathlib import Path
from typing import Any

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
