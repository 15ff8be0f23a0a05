"""Who a request comes from."""

from typing import NamedTuple


class Principal(NamedTuple):
    """A Kafka principal; its text is `type:name`, such as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Everyone on a PLAINTEXT listener, and TLS clients without a certificate."""
