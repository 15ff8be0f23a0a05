"""Record what brokers of older releases of Apache Kafka answer to ApiVersions: what `Broker(version="3.9")` imitates.

`python -m tools.record_release_versions` fetches each release from Maven Central, starts a broker of it, and writes
tests/golden/release_versions.json: by release, the versions of each API and the features. 2.8 runs with ZooKeeper, the
others with KRaft. ONLY RELEASE... records some, and leaves the others as they are.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from harness.servers import ApacheKafka, java
from kafkapy.cli.connection import Connection
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from tools.kafka import PREVIOUS_VERSION
from tools.legacy_golden import VERSION as WITH_ZOOKEEPER
from tools.legacy_golden import apache_kafka
from tools.maven import maven_copy

GOLDEN: Final = Path(__file__).resolve().parents[1] / "tests" / "golden" / "release_versions.json"
RELEASES: Final = {"2.8": WITH_ZOOKEEPER, "3.9": "3.9.1", "4.1": "4.1.1", "4.3": PREVIOUS_VERSION}
TIMEOUT_S: Final = 120


class OlderKafka(ApacheKafka):
    """A release whose jars lie in a directory."""

    def __init__(self, directory: Path, libs: Path) -> None:
        super().__init__(directory)
        self._libs = libs

    def prepare(self) -> None:
        self.write_properties()
        command = java("kafka.tools.StorageTool", *self.format_command(), libs=[self._libs])
        subprocess.run(command, check=True, capture_output=True)

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self.properties_file), heap=self.heap, libs=[self._libs])


def record(version: str, directory: Path) -> dict[str, Any]:
    libs = directory / "libs"
    maven_copy([("org.apache.kafka", "kafka_2.13", version)], libs)
    if version == WITH_ZOOKEEPER:
        with apache_kafka(libs, directory) as bootstrap:
            return {"kafka": version, **asked(bootstrap, 3)}
    with OlderKafka(directory / "data", libs) as kafka:
        return {"kafka": version, **asked(kafka.bootstrap, 4)}


def asked(bootstrap: str, version: int) -> dict[str, Any]:
    """Return the response to ApiVersions; from version 4 on it has features that begin at 0, too (KIP-584)."""
    AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=TIMEOUT_S)  # until it answers
    with Connection.to_any(bootstrap) as connection:
        request = ApiVersionsRequest(client_software_name="record", client_software_version="1")
        response = connection.call(request, version)
    rows = sorted(response.api_keys, key=lambda each: int(each.api_key))
    return {
        "apis": {str(each.api_key): f"{each.min_version}-{each.max_version}" for each in rows},
        "supported": {each.name: f"{each.min_version}-{each.max_version}" for each in response.supported_features},
        "finalized": {each.name: each.max_version_level for each in response.finalized_features},
    }


def main(only: list[str]) -> None:
    found = json.loads(GOLDEN.read_text()) if only else {}
    for release, version in RELEASES.items():
        if not only or release in only:
            with tempfile.TemporaryDirectory() as directory:
                found[release] = record(version, Path(directory))
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
