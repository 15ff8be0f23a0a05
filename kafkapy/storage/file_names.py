"""Names in a log directory: segment files by their base offset, partition directories, and their suffixes.

<topic>-<partition>/00000000000000000042.log      with .index, .timeindex, .txnindex; .snapshot at some offsets
<topic>-<partition>.<32 hex digits>-delete        pending deletion; -stray: moved aside, left to the operator;
                                                  -future: a replica being moved to this directory
"""

import re
from typing import Final

from kafkapy.seams import Disk
from kafkapy.types import METADATA_PARTITION, TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
"""In a formatted log directory: the first records of an empty metadata log."""
RAFT_SNAPSHOT_SUFFIX: Final = ".checkpoint"
RAFT_SNAPSHOT_DELETED_SUFFIX: Final = ".checkpoint.deleted"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"
MAX_FILE_NAME_LENGTH: Final = 255
"""In bytes, of the usual file systems; topic names are ASCII."""

INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

_MARKED_DIRECTORY = r"^(\S+)-(\d+)\.[0-9a-f]{32}(-delete|-stray|-future)$"  # compiled when there is one
_PARTITION_DIRECTORY = re.compile(r"^(\S+)-(\d+)$")


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a file of the segment (or snapshot) at `base_offset`: 20 digits and the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Return the offset at the start of a file's name; None if the name does not begin with digits and a dot."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def parse_partition_directory(name: str) -> tuple[TopicPartition, str] | None:
    """Return the partition and the marker ("", -delete, -stray, -future) of a directory name, or None."""
    plain = _PARTITION_DIRECTORY.match(name)
    if plain is not None:
        return TopicPartition(plain[1], int(plain[2])), ""
    marked = re.match(_MARKED_DIRECTORY, name)
    return (TopicPartition(marked[1], int(marked[2])), marked[3]) if marked is not None else None


def partition_directories(disk: Disk, directory: str) -> list[str]:
    """Return the names of the partition directories, including -future ones, without __cluster_metadata-0.

    Empty if the directory is missing. Raises OSError.
    """
    if not disk.exists(directory):
        return []
    found = [(name, parse_partition_directory(name)) for name in disk.list_directory(directory)]
    return [
        name
        for name, parsed in found
        if parsed is not None and parsed[0] != METADATA_PARTITION and parsed[1] in ("", FUTURE_DIRECTORY_SUFFIX)
    ]


def holds_metadata_log(disk: Disk, directory: str) -> bool:
    """Return whether a log directory holds a segment of the metadata log; formatting writes at most a snapshot.

    Raises OSError.
    """
    path = f"{directory}/{METADATA_PARTITION}"
    return disk.exists(path) and any(name.endswith(LOG_SUFFIX) for name in disk.list_directory(path))


def marked_directory(topic_partition: TopicPartition, unique: bytes, marker: str) -> str:
    """Return the marked name of a partition directory; the topic is shortened if the name would be too long."""
    tail = f"-{topic_partition.partition}.{unique.hex()}{marker}"
    return topic_partition.topic[: MAX_FILE_NAME_LENGTH - len(tail)] + tail
