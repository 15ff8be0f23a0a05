"""Requests over our own connection; failures become one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from kafkapy.cli.failure import INTERRUPTED, fail, reason_of
from kafkapy.errors import ProtocolError

if TYPE_CHECKING:
    from kafkapy.cli.connection import Connection


@contextmanager
def connected(servers: str) -> "Iterator[Connection]":
    """Yield a connection; turn a failure into one line and exit status 1."""
    from kafkapy.cli.command_config import CommandConfigError
    from kafkapy.cli.connection import Connection

    try:
        with Connection.to_any(servers) as connection:
            yield connection
    except (OSError, ProtocolError, CommandConfigError) as error:
        raise typer.Exit(fail(reason_of(error))) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


def checked(response: Any) -> Any:
    """Return a response without an error; else print the error, with the broker's message if there is one, and exit."""
    from kafkapy.protocol.error_code import ErrorCode

    if response.error_code:
        code = ErrorCode(response.error_code)
        raise typer.Exit(fail(f"{getattr(response, 'error_message', None) or code.message} ({code.name})"))
    return response
