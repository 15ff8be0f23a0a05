"""Record what Apache Kafka 4.4.0 answers about transactions in every state, and what its transaction log then holds.

`python -m tools.record_transactions` starts Apache Kafka at transaction.version 0, 1 and 2, each twice (the second
start loads what was crafted), plays the scenarios of tests/support/transaction_script.py and writes
tests/golden/transactions.jsonl.gz: a scenario a line.
"""

import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness.servers import CLUSTER_ID, STOCK_JVM, ApacheKafka, java
from tests.support import transaction_script as script
from tools.kafka import JAVA_LIBS

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "transactions.jsonl.gz"


class SmallKafka(ApacheKafka):
    """Formatted at a level of transaction.version; a heap of 384 MiB."""

    transaction_version = 2

    def prepare(self) -> None:
        if (self.directory / "meta.properties").exists():
            super().prepare()
            return
        (self.directory / "meta.properties").parent.mkdir(exist_ok=True)
        (self.directory / "meta.properties").touch()
        super().prepare()  # writes the properties; takes the directory for one that is formatted
        (self.directory / "meta.properties").unlink()
        feature = ["--feature", f"transaction.version={self.transaction_version}"]
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties_file), "--standalone", *feature]
        subprocess.run(java("kafka.tools.StorageTool", *arguments), check=True, capture_output=True)

    def command(self) -> list[str]:
        return ["java", "-Xmx384m", *STOCK_JVM, "-cp", f"{JAVA_LIBS}/*", "kafka.Kafka", str(self.properties_file)]


def main() -> None:
    with gzip.GzipFile(GOLDEN, "wb", compresslevel=9, mtime=0) as out:
        for transaction_version in (2, 1, 0):
            for scenario in record(transaction_version):
                out.write(json.dumps(scenario, separators=(",", ":")).encode() + b"\n")


def record(transaction_version: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        kafka = SmallKafka(Path(directory) / "data", script.PROPERTIES)
        kafka.transaction_version = transaction_version
        with kafka:
            play = script.Play(kafka.bootstrap, transaction_version)
            play.prepare()
            script.play_bad_requests(play)
            script.play_nothing_added(play)
            script.play_time_outs(play)
            script.play_both_kinds(play)
            script.play_orders(play)
            script.play_lists(play)
            script.play_recipes(play)
            script.play_held(play)
            script.craft_all(play)
            kafka.stop()
            kafka.start()
            play.reconnect(kafka.bootstrap)
            play.find_coordinator()
            script.play_crafted(play)
            script.play_renewed(play)
            play.client.close()
        print(f"transaction.version {transaction_version}: {len(play.scenarios)} scenarios", flush=True)
        return play.scenarios


if __name__ == "__main__":
    main()
