"""Names of topics: which are valid, which are internal, and which collide.

A name has at most 249 of the characters [a-zA-Z0-9._-]. Two names that differ only in "." and "_" collide, because the
names of their metrics would.
"""

import re
from collections.abc import Set
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import METADATA_PARTITION

MAX_TOPIC_NAME_LENGTH: Final = 249
"""With "-" and a partition of five digits, the name of its directory has 255 bytes: what file systems take."""
SHARE_STATE_TOPIC: Final = "__share_group_state"
"""The topic that holds the share coordinator's records (share/state_records.py)."""
INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", SHARE_STATE_TOPIC))
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NONE: Final[frozenset[str]] = frozenset()


def invalid_topic_name_reason(name: str) -> str | None:
    """Return why a topic name is invalid, None if it is valid."""
    if name == "":
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def prohibited_name_error(name: str) -> ApiError | None:
    """Return an error for the metadata log's name, else None: a topic of that name would share its directory."""
    if name != METADATA_PARTITION.topic:
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")


class NameCollisions:
    """The existing names with "." or "_", by the name with each "." replaced by "_"."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def add(self, name: str) -> None:
        unified = name.replace(".", "_")
        if "_" in unified:
            self._names.setdefault(unified, set()).add(name)

    def remove(self, name: str) -> None:
        unified = name.replace(".", "_")
        if "_" in unified:
            colliding = self._names[unified]
            assert name in colliding, f"{name} is removed that is no topic"
            colliding.discard(name)
            if not colliding:
                del self._names[unified]

    def find(self, name: str) -> Set[str]:
        """Return the existing names with which a new name collides."""
        return self._names.get(name.replace(".", "_"), _NONE)
