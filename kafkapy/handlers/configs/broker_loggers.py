"""The broker's loggers as a config resource (KIP-412): levels by logger name, changed at once and never stored.

Levels are Python's under Kafka's names; TRACE is below DEBUG. A logger without its own level has its parent's. Besides
kafkapy's loggers there are those of Apache Kafka's log4j2.yaml that have a counterpart here.
"""

import logging
from collections.abc import Sequence

from kafkapy.errors import ApiError
from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType
from kafkapy.protocol.error_code import ErrorCode

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

KAFKA_LOGGERS = {
    "kafka": ("kafkapy", "kafka"),
    "kafka.authorizer.logger": ("kafka.authorizer.logger",),
    "kafka.request.logger": ("kafka.request.logger",),
    "org.apache.kafka": ("kafkapy",),
    "org.apache.kafka.controller": ("kafkapy.runtime.controller",),
    "org.apache.kafka.raft": ("kafkapy.runtime.quorum",),
    "org.apache.kafka.storage.internals.log.LogCleaner": ("kafkapy.storage.cleaner.cleaning_pass",),
    "state.change.logger": ("kafkapy.replication",),
}
"""By Kafka's logger name: the corresponding loggers here; the first one's level is shown."""


def loggers_of(name: str) -> list[logging.Logger]:
    """Return the loggers for a name: Kafka's, one of kafkapy's, or "root"."""
    return [_logger(each) for each in KAFKA_LOGGERS.get(name, (name,))]


def levels_by_logger() -> dict[str, str]:
    """Return the effective level of every existing logger."""
    names = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    names = sorted({*names, *KAFKA_LOGGERS})
    return {name: _level_name(loggers_of(name)[0].getEffectiveLevel()) for name in (ROOT, *names)}


def alter(operations: Sequence[ConfigOperation], *, validate_only: bool) -> ApiError | None:
    """Set and unset levels, all or none. Return None on success."""
    known = levels_by_logger()
    for operation in operations:
        error = _refusal(operation, known)
        if error is not None:
            return error
    for operation in () if validate_only else operations:
        is_set = operation.operation is ConfigOperationType.SET
        for logger in loggers_of(operation.name):
            logger.setLevel(LEVELS[operation.value or ""] if is_set else logging.NOTSET)
    return None


def _refusal(operation: ConfigOperation, known: dict[str, str]) -> ApiError | None:
    if operation.operation in (ConfigOperationType.APPEND, ConfigOperationType.SUBTRACT):
        message = f"{operation.operation.name} operation is not allowed for the BROKER_LOGGER resource"
        return ApiError(ErrorCode.INVALID_REQUEST, message)
    if operation.name not in known:
        return ApiError(ErrorCode.INVALID_CONFIG, f"Logger {operation.name} does not exist!")
    if operation.operation is ConfigOperationType.DELETE:
        if operation.name != ROOT:
            return None
        return ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if operation.value not in LEVELS:
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {operation.name} to {operation.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    return None


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    return next((name for name, value in reversed(LEVELS.items()) if value <= level), "TRACE")
