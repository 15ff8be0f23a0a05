"""The process's log: lines in log4j's layout, `[2026-01-31 12:00:00,123] INFO text (logger)`, or JSON lines.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "kafkapy.server", "message": "text"}

A JSON line also has "exception", the traceback, if there is one.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from kafkapy.server.process.log_writer import LogWriter

LEVEL_NAMES: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
JSON_VARIABLE: Final = "KAFKAPY_LOG_JSON"
FILE_VARIABLE: Final = "KAFKAPY_LOG_FILE"
"""Environment variables that define for helper processes where and how to log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSettings:
    """levels: by logger, "root" for all. The file grows to max_bytes, then rotates; file_count older files are kept."""

    levels: Mapping[str, int]
    is_json: bool = False
    file: str | None = None
    max_bytes: int = 100 << 20
    file_count: int = 10


class KafkaFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def format(self, record: logging.LogRecord) -> str:
        record.levelname = LEVEL_NAMES.get(record.levelname, record.levelname)
        return super().format(record)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from json import dumps  # most processes log text

        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": LEVEL_NAMES.get(record.levelname, record.levelname),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line)


@contextmanager
def started(settings: LogSettings) -> Iterator[None]:
    """Log as the settings say, to standard error if they name no file; at the end, as before. Raises OSError.

    If there was no handler before, the closed one stays, and drops what threads may still log while the process ends.
    A separate thread writes the lines (log_writer.py), so that callers never wait for a disk or a pipe.
    """
    handlers, levels = logging.root.handlers[:], {each: each.level for each in _loggers()}
    writer = _start(settings)
    try:
        yield
    finally:
        writer.close()
        logging.root.handlers[:] = handlers or logging.root.handlers
        for each in _loggers():
            if each.level != levels.get(each, logging.NOTSET):
                each.setLevel(levels.get(each, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]


def _start(settings: LogSettings) -> "LogWriter":
    from kafkapy.server.process.log_writer import FileSink, LogWriter, StreamSink

    if settings.is_json:
        os.environ[JSON_VARIABLE] = "1"
    if settings.file is None:
        sink: FileSink | StreamSink = StreamSink(sys.stderr)
    else:
        path = os.path.abspath(settings.file)
        sink = FileSink(path, settings.max_bytes, settings.file_count)
        os.environ[FILE_VARIABLE] = path
    writer = LogWriter(sink)
    _install(writer, is_json=settings.is_json)
    _set_levels(settings.levels)
    return writer


def _set_levels(levels: Mapping[str, int]) -> None:
    from kafkapy.handlers.configs.broker_loggers import loggers_of
    from kafkapy.serving.request_logger import request_logger

    for logger in (logging.getLogger("asyncio"), request_logger):
        logger.setLevel(logging.WARNING)
    for name, level in levels.items():
        for logger in loggers_of(name):
            logger.setLevel(level)


def configure(level: int = logging.INFO) -> None:
    """Configure logging of a helper process: from `level` on, with the output and format of its parent process.

    It appends to the parent's file without rotating it. Each line is written before the call returns, as the parent may
    end the helper right after its response.
    """
    from kafkapy.server.process.log_writer import DirectHandler, FileSink, StreamSink

    path = os.environ.get(FILE_VARIABLE)
    sink = FileSink(path, None, 0) if path else StreamSink(sys.stderr)
    _install(DirectHandler(sink), is_json=bool(os.environ.get(JSON_VARIABLE)))
    _set_levels({"root": level})


def _install(handler: logging.Handler, *, is_json: bool) -> None:
    handler.setFormatter(JsonFormatter() if is_json else KafkaFormatter())
    logging.basicConfig(handlers=[handler], force=True)
