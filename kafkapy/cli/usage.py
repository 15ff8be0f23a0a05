"""Help and errors of the commands that have no parser: completion, protocol."""

import sys
from collections.abc import Sequence


def print_usage(arguments: Sequence[str], command: str, usage: str, text: str) -> int:
    """Print the help if the arguments ask for it, else what is wrong, in one line; return the exit status: 0 or 2.

    usage: what may follow the command.
    """
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(f"usage: kafkapy {command} {usage}\n\n{text}")
        return 0
    given = f"not {' '.join(arguments)}" if arguments else "nothing was given"
    print(f"kafkapy: expected {usage}, {given} (see kafkapy {command} -h)", file=sys.stderr)
    return 2
