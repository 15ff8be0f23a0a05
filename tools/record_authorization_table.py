"""Record what Apache Kafka's handlers ask its authorizer: API -> questions, for askers with all, no and some rights.

`python -m tools.record_authorization_table` (`make golden`) starts Apache Kafka with its
StandardAuthorizer and the audit log at TRACE, sends the requests of tests/support/authorization_script.py, and writes
tests/golden/authorization.tsv; of controller_authorization_script.py there, and writes authorization_controller.tsv.
tests/scenarios/test_authorization_table.py holds our own audit log to both.
"""

import tempfile
from pathlib import Path

from harness.servers import ApacheKafka
from kafkapy.handlers.table import BROKER_APIS
from tests.support.authorization_script import PROPERTIES, play
from tests.support.controller_authorization_script import play_controller
from tools.kafka import JAVA_LIBS, fetch_logging_libs

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
LOG4J = """<Configuration><Appenders><File name="audit" fileName="{path}" immediateFlush="true">
<PatternLayout pattern="%p %m%n"/></File></Appenders><Loggers><Root level="OFF"/>
<Logger name="kafka.authorizer.logger" level="TRACE"><AppenderRef ref="audit"/></Logger></Loggers></Configuration>"""


class AuditedKafka(ApacheKafka):
    """Apache Kafka with its audit log in DIRECTORY.audit."""

    @property
    def audit_path(self) -> Path:
        return Path(f"{self.directory}.audit")

    def command(self) -> list[str]:
        log4j = Path(f"{self.directory}.log4j2.xml")
        log4j.write_text(LOG4J.format(path=self.audit_path))
        path = f"{JAVA_LIBS}/*:{fetch_logging_libs()}/*"
        settings = [f"-Dlog4j2.configurationFile={log4j}", "-cp", path]
        return ["java", "-Xmx512m", *settings, "kafka.Kafka", str(self.properties_file)]


def main() -> None:
    for name, record in (("authorization.tsv", of_broker), ("authorization_controller.tsv", of_controller)):
        with tempfile.TemporaryDirectory() as directory, AuditedKafka(Path(directory) / "data", PROPERTIES) as kafka:
            rows = record(kafka)
        (GOLDEN / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def of_broker(kafka: AuditedKafka) -> list[str]:
    with open(kafka.audit_path, encoding="utf-8") as audit:
        return list(play(kafka.bootstrap, audit.readlines, BROKER_APIS))


def of_controller(kafka: AuditedKafka) -> list[str]:
    with open(kafka.audit_path, encoding="utf-8") as audit:
        return list(play_controller(kafka.bootstrap, f"127.0.0.1:{kafka.controller_port}", audit.readlines))


if __name__ == "__main__":
    main()
