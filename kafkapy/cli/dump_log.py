"""`kafkapy dump-log FILE...`: prints segments, snapshots and indexes like kafka-dump-log.sh.

Takes that tool's options, including `--files a,b`. For a directory its segments are printed; that tool ignores it as
unknown. Exit status 1 if a file cannot be read or is corrupt. The parser needs nothing but the standard library: a
build of the wheel makes the manual pages of it.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy.cli.failure import fail
from kafkapy.cli.parser import OneLineParser

if TYPE_CHECKING:
    from kafkapy.storage.offline.dump import DumpOptions

_DECODERS = {
    "cluster-metadata-decoder": ("decode_metadata", "read records as those of the metadata log"),
    "offsets-decoder": ("decode_group", "read records as those of __consumer_offsets"),
    "transaction-log-decoder": ("decode_transaction", "read records as those of __transaction_state"),
    "share-group-state-decoder": ("decode_share", "read records as those of __share_group_state"),
}
"""The functions of kafkapy.storage.offline.dump_records, by the option that selects each."""


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy dump-log`; return the exit status."""
    parser = new_parser()
    given = parser.parse_args(arguments)
    files = [*given.file, *(path for paths in given.files for path in paths.split(",") if path)]
    if not files:
        parser.error("no file was given")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    from kafkapy.storage.offline import dump, dump_records
    from kafkapy.storage.system_disk import SystemDisk

    decode = getattr(dump_records, given.decoder or "decode_text")
    dumper = dump.Dumper(SystemDisk(), _options(given), _print, _print_error, decode)
    status = 0
    for path in files:
        try:
            for file in _segments(path) if os.path.isdir(path) else [path]:
                os.stat(file)
                dumper.dump(file)
        except BrokenPipeError:
            raise
        except OSError as error:
            status = fail(f"{path}: {error.strerror or error}")
    dumper.finish()
    return 1 if dumper.has_failed else status


def _segments(directory: str) -> list[str]:
    """Return the segments of a partition's directory, in order. Raises OSError if there are none."""
    found = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "no .log file is in this directory: name a partition's, or a file")
    return [os.path.join(directory, name) for name in found]


def new_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="kafkapy dump-log",
        description="Print log segments, Raft snapshots, indexes and producer snapshots of a stopped log directory.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        nargs="*",
        metavar="FILE",
        help="a .log, .index, .timeindex, .txnindex, .snapshot or .checkpoint file; a directory: its .log files",
    )
    parser.add_argument("--files", action="append", default=[], metavar="FILE,...", help="the same, comma-separated")
    parser.add_argument("--deep-iteration", action="store_true", help="print the records of each batch")
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values, too")
    parser.add_argument("--skip-record-metadata", action="store_true", help="print only keys and values of records")
    parser.add_argument("--verify-index-only", action="store_true", help="check indexes without printing them")
    parser.add_argument("--index-sanity-check", action="store_true", help="check what a broker checks at its start")
    parser.add_argument(
        "--max-message-size",
        type=int,
        default=5 * 1024 * 1024,
        metavar="BYTES",
        help="the largest batch that is expected",
    )
    parser.add_argument("--max-bytes", type=int, metavar="BYTES", help="read at most this much of a .log")
    for name, (decoder, text) in _DECODERS.items():
        parser.add_argument(f"--{name}", dest="decoder", action="store_const", const=decoder, help=text)
    return parser


def _options(given: argparse.Namespace) -> "DumpOptions":
    from kafkapy.storage.offline.dump import NO_LIMIT, DumpOptions

    print_data_log = given.print_data_log or given.decoder is not None
    return DumpOptions(
        deep_iteration=given.deep_iteration or print_data_log,
        print_data_log=print_data_log,
        skip_record_metadata=given.skip_record_metadata,
        verify_index_only=given.verify_index_only,
        index_sanity_check=given.index_sanity_check,
        max_message_bytes=given.max_message_size,
        max_bytes=NO_LIMIT if given.max_bytes is None else given.max_bytes,
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)
