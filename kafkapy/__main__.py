"""`kafkapy` and `python -m kafkapy`: finds the command, and imports nothing that it does not need.

`start` must be ready in a fraction of a second, so the commands without tables and colours (start, storage, protocol,
dump-log) read their arguments with argparse; the others are typer's.
"""

import errno
import os
import sys
from collections.abc import Sequence

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk that takes no more of what is printed to a file."""
INTERRUPTED = 130
"""kafkapy.cli.failure's, which is not imported yet when Ctrl-C may come."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 130 after Ctrl-C, 1 if stdout is closed by its reader, or full."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--"]:
        del given[0]  # the rest is a command, as without it
    is_process = arguments is None
    if is_process:
        _open_standard_streams()
    if given[:1] == ["start"]:
        return _start(given[1:], is_process=is_process)
    try:
        status = _run(given, is_process=is_process)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        if is_process:
            _discard_output()
        return 1
    except OSError as error:
        if error.errno not in FULL:
            raise
        if is_process:
            _discard_output()
        from kafkapy.cli.failure import fail, reason_of

        return fail(f"not all could be written: {reason_of(error)}")
    return status


def _start(rest: Sequence[str], *, is_process: bool) -> int:
    if is_process:
        from kafkapy.child_command import prepare_start

        prepare_start()
    from kafkapy.cli.start import main as start

    return start(rest)


def _run(given: list[str], *, is_process: bool) -> int:
    # each imports its own modules only: most need neither typer nor a client, whose imports take longer than the work
    command, rest = (given[0], given[1:]) if given else ("", [])
    match command:
        case "--version" if not rest:
            from kafkapy import compiled
            from kafkapy.version import __version__

            print(f"kafkapy {__version__} {compiled.description()}")
            return 0
        case "storage":
            from kafkapy.cli.storage import main as storage

            return storage(rest)
        case "protocol":
            from kafkapy.cli.protocol import main as protocol

            return protocol(rest)
        case "dump-log":
            from kafkapy.cli.dump_log import main as dump_log

            return dump_log(rest)
        case "completion":
            from kafkapy.cli.completion import main as completion

            return completion(rest)
        case "console":
            from kafkapy.console.main import main as console

            return console(rest)
        case "record" | "replay":
            from kafkapy.recording.main import main as recording

            return recording(command, rest)
        case "registry":
            from kafkapy.registry.main import main as registry

            return registry(rest)
        case "man":
            from kafkapy.cli.manual import main as manual

            return manual(rest)
        case _:
            if is_process:
                from kafkapy.cli.interrupt import end_soon_after_interrupt

                end_soon_after_interrupt()
            from kafkapy.cli.main import main as others

            return others(given)


def _discard_output() -> None:
    """Redirect stdout to /dev/null: at exit Python would report that it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Open /dev/null in place of each closed standard stream.

    Else a socket or the event loop's own descriptor takes its number: what is printed goes there, and libuv aborts.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == descriptor, "the lowest free number is taken"
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


if __name__ == "__main__":
    sys.exit(main())
