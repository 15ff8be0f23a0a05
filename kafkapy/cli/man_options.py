"""The command line of `kafkapy man`; what it runs is manual.py."""

import argparse
from pathlib import Path

from kafkapy.cli.parser import OneLineParser


def new_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy man", description="Print the manual page of a command, for man.", allow_abbrev=False
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the words of a command, as in `topics create`")
    parser.add_argument("--to", type=Path, metavar="DIRECTORY", help="write the pages of all commands to a directory")
    return parser
