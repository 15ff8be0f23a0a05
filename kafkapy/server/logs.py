"""Log lines as Apache Kafka's log4j writes them: `[2026-01-31 12:00:00,123] INFO text (logger)`, on standard error."""

import logging
import sys


class KafkaFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def format(self, record: logging.LogRecord) -> str:
        record.levelname = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(record.levelname, record.levelname)
        return super().format(record)


def configure(level: int = logging.INFO) -> None:
    """Send the process's log to standard error from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KafkaFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
