"""The parser of the commands that do without typer: its errors are one line, as every command's are."""

import argparse
import sys
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose usage errors are one line on stderr; exit status 2."""

    def error(self, message: str) -> NoReturn:
        print(f"kafkapy: {' '.join(message.split())} (see {self.prog} -h)", file=sys.stderr)
        sys.exit(2)
