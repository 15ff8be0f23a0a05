"""Command-line options of the log: level, format, file."""

import argparse
import logging
from typing import Final

from kafkapy.server.process.logs import LogSettings

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
UNITS: Final = {"K": 10, "M": 20, "G": 30}
DEFAULT_LEVEL: Final = logging.WARNING


def add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level",
        type=_level,
        action="append",
        default=[],
        metavar="[LOGGER=]LEVEL",
        help=f"what to log: {', '.join(LEVELS)} (default WARN); may be repeated for single loggers, ours or Kafka's",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="JSON: one object a line")
    parser.add_argument("--log-file", metavar="FILE", help="log there and not on stderr")
    parser.add_argument(
        "--log-file-size", type=_size, default=100 << 20, metavar="BYTES", help="at most; K, M, G (default 100M)"
    )
    parser.add_argument(
        "--log-file-count", type=_count, default=10, metavar="N", help="older files kept, FILE.1 to FILE.N (default 10)"
    )


def log_settings(given: argparse.Namespace) -> LogSettings:
    """Return the settings from the parsed options."""
    return LogSettings(
        levels={"root": DEFAULT_LEVEL, **dict(given.log_level)},
        is_json=given.log_format == "json",
        file=given.log_file,
        max_bytes=given.log_file_size,
        file_count=given.log_file_count,
    )


def _level(text: str) -> tuple[str, int]:
    logger, _, level = text.rpartition("=")
    if level.upper() not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text}: the level is one of {', '.join(LEVELS)}")
    return logger.strip() or "root", LEVELS[level.upper()]


def _size(text: str) -> int:
    digits, shift = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 0)
    if not digits.isdecimal() or not int(digits):
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes, as 1048576 or 100M")
    return int(digits) << shift


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of files")
    return int(text)
