"""Spark's own Kafka connector and its package for Avro (`from_avro`), chosen to fit the installed PySpark.

`python -m spark_jobs.connector` fetches their jars from Maven Central into .tools/ (once).
"""

import subprocess
import sys
from pathlib import Path

import pyspark

from spark_jobs.errors import JobError
from tools.maven import ToolsMissing, maven_copy

SPARK = "org.apache.spark"


def coordinates(version: str) -> list[tuple[str, str, str]]:
    """Return (group, artifact, version) of the jars for a PySpark version.

    For Spark 4.0 and 4.1 Maven Central has only the token provider of 4.0.0, which fits all of them.
    """
    if version.startswith("3.5."):
        scala, clients, token_provider, pool = "2.12", "3.4.1", version, "2.11.1"
    elif version.startswith(("4.0.", "4.1.")):
        clients = "3.9.0" if version.startswith("4.0.") else "3.9.2"
        scala, token_provider, pool = "2.13", "4.0.0", "2.12.0"
    else:
        scala, clients, token_provider, pool = "2.13", "3.9.2", version, "2.13.1"
    return [
        (SPARK, f"spark-sql-kafka-0-10_{scala}", version),
        (SPARK, f"spark-token-provider-kafka-0-10_{scala}", token_provider),
        ("org.apache.kafka", "kafka-clients", clients),
        ("org.apache.commons", "commons-pool2", pool),
        (SPARK, f"spark-avro_{scala}", version),
    ]


def jars_directory(version: str = pyspark.__version__) -> Path:
    return Path(__file__).resolve().parent.parent / ".tools" / f"spark-kafka-{version}"


def are_fetched(version: str = pyspark.__version__) -> bool:
    """Return whether all jars are there: a directory of an older checkout may lack some."""
    directory = jars_directory(version)
    return all((directory / f"{artifact}-{number}.jar").is_file() for _, artifact, number in coordinates(version))


def jars(version: str = pyspark.__version__) -> list[Path]:
    """Return the connector's jars; fetch them if they are not there.

    Raises ToolsMissing without Java or Maven, JobError if Maven cannot fetch them.
    """
    directory = jars_directory(version)
    if not are_fetched(version):
        print(f"fetching the Kafka connector of Spark {version} from Maven Central", flush=True)
        try:
            maven_copy(coordinates(version), directory, transitive=False)
        except subprocess.CalledProcessError as error:
            raise JobError(
                f"the Kafka connector of Spark {version} cannot be fetched (mvn exit {error.returncode}): can Maven "
                f"Central be reached, and has it one of this version?"
            ) from None
    return sorted(directory.glob("*.jar"))


def require_spark(what: str, since: str, otherwise: str = "") -> None:
    """Raise JobError if the installed PySpark is older than `since`, "4.2" for example."""
    here = pyspark.__version__
    if [int(part) for part in here.split(".")[:2]] < [int(part) for part in since.split(".")]:
        hint = f", or {otherwise}" if otherwise else ""
        raise JobError(
            f"{what} needs PySpark {since} or newer, {here} is installed: pip install 'pyspark>={since}'{hint}"
        )


def main() -> int:
    try:
        jars()
    except (ToolsMissing, JobError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
