"""Record what Apache Kafka 4.4.0 answers and writes while groups change their protocol.

`python -m tools.record_migrations` starts Apache Kafka, plays the scripts of tests/support/migrations.py and writes
tests/golden/group_migrations.txt.gz: each script's name, then its responses and records, a line each.
"""

import gzip
import tempfile
from pathlib import Path

from harness.servers import ApacheKafka
from tests.support.migration_script import Play
from tests.support.migrations import SCRIPTS

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "group_migrations.txt.gz"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(Path(directory) / "data") as kafka,
        gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out,
    ):
        for name, script in SCRIPTS.items():
            play = Play(kafka.bootstrap, name)
            script(play)
            play.close()
            out.writelines(f"{line}\n" for line in (f"# {name}", *play.lines))


if __name__ == "__main__":
    main()
