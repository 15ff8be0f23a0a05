"""The parser of the commands that do without typer: its errors are one line, as every command's are."""

import argparse
import sys
from typing import NoReturn

MAX_SIMILAR = 3
"""Options that an error names in place of an unknown one."""


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose usage errors are one line on stderr; exit status 2."""

    def error(self, message: str) -> NoReturn:
        print(f"kafkapy: {' '.join(message.split())}{self._hint(message)} (see {self.prog} -h)", file=sys.stderr)
        sys.exit(2)

    def _hint(self, message: str) -> str:
        """Return the option that was meant, "" if none is like the unknown one."""
        before, _, unknown = message.partition(": ")
        if before != "unrecognized arguments":
            return ""
        import difflib  # for this error alone

        option = unknown.partition(" ")[0].partition("=")[0]
        if option == "--port" and "--listen" in self._option_string_actions:  # as it is called of a broker
            return ". Here it is --listen HOST:PORT"
        alike = difflib.get_close_matches(option, sorted(self._option_string_actions), MAX_SIMILAR)
        return f". Did you mean {' or '.join(alike)}?" if alike else ""
