"""The base classes of the generated messages, the buffer that they are written to, and their bounds.

Nothing here is compiled, so that a generated class may be compiled or not: both kinds inherit from these. The functions
that read and write fields are in primitives.py.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

from kafkapy.errors import ProtocolError
from kafkapy.protocol.element_budget import ElementBudget
from kafkapy.seams import FileRegion

Data: TypeAlias = bytes | memoryview
Records: TypeAlias = memoryview | bytes | FileRegion | None
NewT = TypeVar("NewT")

UNBOUNDED: Final = 1 << 62
"""No bound on the elements of a message; for messages not sent by clients, such as records and received responses."""

EMPTY: Final[list[Any]] = []
"""Default of constructor arguments that means a new empty list. Never stored."""

EMPTY_STRUCT: Final[Any] = object()
"""Default that means a new struct if None means null. Compiled classes cannot have it: its type is not a struct's."""

COMPILED: Final = (".so", ".pyd")
"""Ends of `__file__` in a compiled module, whose classes must be made by their constructor instead of `new`."""


class _New(Protocol):
    def __call__(self, cls: type[NewT], /) -> NewT: ...


new = cast(_New, object.__new__)
"""Creates an instance without calling its constructor: interpreted readers set every field themselves, a third faster.

A compiled class allows it only to its constructor, which costs less there."""


class EncodeError(ProtocolError):
    """The version cannot represent the message, or a field's type cannot hold its value; the output is unusable."""


class MessageStruct:
    """Base class of the generated classes: equality and repr of all slots."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.field_names())

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @classmethod
    def field_names(cls: Any) -> tuple[str, ...]:
        """Return the names of the fields in their order; a compiled class has no slots."""
        names: tuple[str, ...] = cls.__slots__ or tuple(each for each in cls.__mypyc_attrs__ if each[:2] != "__")
        return names

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names())
        return f"{type(self).__name__}({values})"


class Message(MessageStruct):
    """Base class of the generated top-level classes: requests, responses, headers, records and values."""

    __slots__ = ()

    NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    READERS: ClassVar[Mapping[int, Callable[[Data, int, ElementBudget], tuple[Any, int]]]]
    WRITERS: ClassVar[Mapping[int, Callable[["Writer", Any], None]]]

    @classmethod
    def read(
        cls: type["MessageT"], data: Data, position: int, version: int, max_elements: int = UNBOUNDED
    ) -> tuple["MessageT", int]:
        """Read a message of `version` at `position`; return it and the position after it.

        max_elements: the maximum total of its array entries and tagged fields. Raises ProtocolError.
        """
        return cls.read_within(data, position, version, ElementBudget(max_elements))

    @classmethod
    def read_within(
        cls: type["MessageT"], data: Data, position: int, version: int, budget: ElementBudget
    ) -> tuple["MessageT", int]:
        """Read as `read` does, within a budget of elements, which afterwards has the number left."""
        reader = cls.READERS.get(version)
        if reader is None:
            raise ProtocolError(f"{cls.NAME} has no version {version}")
        try:
            message, end = reader(data, position, budget)
        except (IndexError, struct.error) as error:
            raise ProtocolError(f"{cls.NAME} v{version} is cut short: {error}") from error
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{cls.NAME} v{version} holds a string that is not UTF-8: {error}") from error
        except ProtocolError as error:
            raise ProtocolError(f"{cls.NAME} v{version}: {error}") from error
        if end > len(data):
            raise ProtocolError(f"{cls.NAME} v{version} is cut short: needs {end} bytes, has {len(data)}")
        return message, end

    @classmethod
    def decode(cls: type["MessageT"], data: Data, version: int) -> "MessageT":
        """Read a message that fills the whole buffer. Raises ProtocolError, also when bytes are left over."""
        message, end = cls.read(data, 0, version)
        if end != len(data):
            raise ProtocolError(f"{cls.NAME} v{version} ends at byte {end} of {len(data)}")
        return message

    def write(self, out: "Writer", version: int) -> None:
        """Append the message to `out` in the format of `version`. Raises EncodeError."""
        writer = self.WRITERS.get(version)
        if writer is None:
            raise EncodeError(f"{self.NAME} has no version {version}")
        try:
            writer(out, self)
        except EncodeError as error:
            raise EncodeError(f"{self.NAME} v{version}: {error}") from error
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            # Raised by the generated code for a null, an int out of range or a lone surrogate.
            raise EncodeError(f"{self.NAME} v{version} has a value that its field cannot hold: {error}") from error

    def encode(self, version: int) -> bytes:
        """Return the bytes of the message, including spliced records. Raises EncodeError."""
        out = Writer()
        self.write(out, version)
        return out.joined()


MessageT = TypeVar("MessageT", bound=Message)


class Writer(bytearray):
    """The growing bytes of a frame, and the record payloads to insert between them.

    `splices` holds (position in this bytearray, payload) in increasing order. The frame is the bytearray with each
    payload inserted at its position; positions do not count inserted payloads.
    """

    __slots__ = ("splices",)

    def __init__(self) -> None:  # an empty bytearray needs no super().__init__(), which takes 150 ns
        self.splices: list[tuple[int, FileRegion | bytes | memoryview]] = []

    @property
    def wire_length(self) -> int:
        """The length of the frame, including all payloads."""
        return len(self) + sum(len(payload) for _, payload in self.splices)

    def joined(self) -> bytes:
        """Return the whole frame; reads file regions (may block)."""
        if not self.splices:
            return bytes(self)
        pieces: list[bytes | memoryview] = []
        start = 0
        for position, payload in self.splices:
            pieces.append(bytes(self[start:position]))
            pieces.append(payload.read() if isinstance(payload, FileRegion) else payload)
            start = position
        pieces.append(bytes(self[start:]))
        return b"".join(pieces)
