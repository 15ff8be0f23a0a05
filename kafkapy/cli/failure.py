"""Error output of commands, and their exit statuses.

0    success
1    the command failed, for example because no broker is reachable: one line on stderr says why
2    the arguments are wrong (usage error)
130  Ctrl-C
"""

import sys
from typing import Final

from kafkapy.errors import ApiError, ConfigError

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C: 128 + SIGINT, as in shells."""


def fail(reason: str) -> int:
    """Print the reason in one line on stderr; return the exit status."""
    print(f"kafkapy: {' '.join(reason.split())}", file=sys.stderr)
    return 1


def note(text: str) -> None:
    """Print a note that is not a failure, in one line on stderr."""
    print(f"kafkapy: {text}", file=sys.stderr)


def reason_of(error: BaseException) -> str:
    """Return an error's text for the operator; for a configuration error with the allowed values."""
    if isinstance(error, ConfigError):
        from kafkapy.config.definitions import broker_definitions

        definition = broker_definitions().get(error.key)
        allowed = definition.valid_values if definition is not None else ""
        return f"{error} (allowed: {allowed})" if allowed else _with_key(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, ApiError):
        from kafkapy.protocol.error_code import ErrorCode

        return error.message or ErrorCode(error.code).name
    return str(error)


def _with_key(error: ConfigError) -> str:
    text = str(error)
    return text if error.key in text else f"{error.key}: {text}"
