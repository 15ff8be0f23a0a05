"""Help and usage of the commands that have no parser: completion, man, protocol."""

import sys
from collections.abc import Sequence


def print_usage(arguments: Sequence[str], usage: str, text: str = "") -> int:
    """Print the usage, with the text if the arguments ask for help; return the exit status: 0 for help, else 2."""
    is_help = not {"-h", "--help"}.isdisjoint(arguments)
    shown = f"{usage}\n\n{text}" if is_help and text else usage
    print(shown, file=sys.stdout if is_help else sys.stderr)
    return 0 if is_help else 2
