"""Checks log records: `%s` of an object that has no text of its own logs Python's representation."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


def faults_of(record: logging.LogRecord) -> list[str]:
    """Return what is wrong with the arguments of a record, one line each."""
    given = record.args if isinstance(record.args, tuple) else (record.args,) if record.args else ()
    where = f"{record.pathname}:{record.lineno}: {record.msg}"
    return [f"{where}: {type(each).__name__} has no text" for each in given if not has_text(each)]


def has_text(value: object) -> bool:
    """Return whether str(value) is a text for people, rather than a representation for programmers."""
    kind = type(value)
    if isinstance(value, Enum):
        return kind.__str__ is not Enum.__str__
    if isinstance(value, BaseException):
        return _describes_a_failure(value)
    if isinstance(value, (str, int, float)):
        return True
    return kind.__str__ is not object.__str__ and not isinstance(value, (bytes, bytearray))


def _describes_a_failure(error: BaseException) -> bool:
    if type(error).__str__ is BaseException.__str__:
        return len(error.args) == 1 and has_text(error.args[0])
    return not isinstance(error, KeyError)


@contextmanager
def recorded(level: int) -> Iterator[list[logging.LogRecord]]:
    """Log from `level` on; yield the list of the records."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("kafkapy"), Keep()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield records
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
