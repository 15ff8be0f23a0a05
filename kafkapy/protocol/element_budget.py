"""The bound on the elements of a message that is read."""

from kafkapy.errors import ProtocolError


class ElementBudget:
    """The remaining number of elements (array entries and tagged fields) that one message may have.

    Each element costs time and memory even if it takes a single byte, like an empty string. An array's count is
    subtracted before its first element is read, so that a message with too many is refused before they cost anything.
    """

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def exceeded(self, count: int) -> ProtocolError:
        """Return the error for `count` elements, which have already been subtracted."""
        return ProtocolError(f"{count} more array entries or tagged fields, where {self.left + count} more are allowed")
