"""The APIs of Apache Kafka 4.4.0, and the generated classes of their requests, responses and records.

Cheap to import: a message's module is imported when its class is first requested.
"""

from functools import cache
from importlib import import_module

from kafkapy.errors import ProtocolError, quoted
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.api_table import API_ROWS, MESSAGE_MODULES
from kafkapy.protocol.primitives import Message

SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36
LOGIN_APIS = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))


class Api(NamedTuple):
    """An API of Apache Kafka 4.4.0 with its versions there; this broker may serve fewer (handlers/table.py)."""

    key: int
    name: str
    min_version: int
    max_version: int
    max_stable_version: int
    flexible_from: int
    listeners: tuple[str, ...]

    @property
    def request_name(self) -> str:
        return self.name + "Request"

    @property
    def response_name(self) -> str:
        return self.name + "Response"

    def response_header_version(self, version: int) -> int:
        """Return 1 for flexible versions, else 0; always 0 for ApiVersions, as its reader knows no versions yet."""
        return 1 if version >= self.flexible_from and self.key != API_VERSIONS else 0


APIS: dict[int, Api] = {row[0]: Api(*row) for row in API_ROWS}
"""Every API by its key."""


def api_of(api_key: int) -> Api:
    """Return the API of a key. Raises ProtocolError when there is none."""
    api = APIS.get(api_key)
    if api is None:
        raise ProtocolError(f"no api has the key {api_key}")
    return api


def api_key_of(frame: memoryview) -> int:
    """Return the API key of a request frame, whether an API has it or not."""
    return int.from_bytes(frame[:2], "big", signed=True)


def api_name(api_key: int) -> str:
    """Return the name of an API key for log lines, also of an unknown one."""
    api = APIS.get(api_key)
    return str(api_key) if api is None else f"{api.name} ({api_key})"


@cache
def request_type(api_key: int) -> type[Message]:
    """Import and return the class of an API's request. Raises ProtocolError for an unknown key."""
    return message_type(api_of(api_key).request_name)


@cache
def response_type(api_key: int) -> type[Message]:
    """Import and return the class of an API's response. Raises ProtocolError for an unknown key."""
    return message_type(api_of(api_key).response_name)


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the header version of a response. Raises ProtocolError for an unknown key."""
    return api_of(api_key).response_header_version(api_version)


@cache
def message_type(name: str) -> type[Message]:
    """Import and return the class of a message or record by its name in the spec. Raises ProtocolError."""
    module = MESSAGE_MODULES.get(name)
    if module is None:
        raise ProtocolError(f"no message is named {quoted(name)}")
    found: type[Message] = getattr(import_module(f"kafkapy.protocol.messages.{module}"), name)
    return found
