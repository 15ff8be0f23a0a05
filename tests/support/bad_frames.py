"""Kafka's own requests as frames, and changes of them that are seeded: damaged, cut and hostile ones.

The bodies are those of golden/messages.jsonl.gz: every served API at every version.
"""

import gzip
import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from kafkapy.handlers.table import BROKER_APIS, ServedApi
from kafkapy.protocol.api import request_type
from kafkapy.protocol.headers import FLEXIBLE_FROM
from kafkapy.record.builder import seal

UNREGISTERED: Final = {"brokerId": 1}
"""A request to unregister the broker that gets it, which would do so."""


@cache
def golden_bodies() -> dict[str, dict[int, list[bytes]]]:
    """Return the bodies that Kafka's classes wrote, by message name and version."""
    bodies: dict[str, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    path = Path(__file__).parent.parent / "golden" / "messages.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            if row["json"] == UNREGISTERED:
                continue
            bodies[row["message"]][row["version"]].append(bytes.fromhex(row["hex"]))
    return bodies


def served() -> Iterator[tuple[ServedApi, int]]:
    for api in BROKER_APIS.values():
        for version in range(api.served_min, api.max_version + 1):
            yield api, version


def header(api_key: int, version: int) -> bytes:
    tags = b"\0" if version >= FLEXIBLE_FROM[api_key] else b""
    return struct.pack(">hhih", api_key, version, 42, 4) + b"fuzz" + tags


def frames_of(api: ServedApi, version: int) -> list[bytes]:
    """Return well-formed request frames."""
    bodies = golden_bodies()[request_type(api.api_key).NAME][version]
    assert bodies, f"{api} v{version} has no golden request"
    return [header(api.api_key, version) + body for body in bodies]


def changed(frame: bytes, random: Random) -> bytes:
    """Return the frame with one to three changes behind its API key and version."""
    data = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(CHANGES)(data, random)
    return bytes(data)


def cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(4, len(data) + 1) :]


def flip_a_bit(data: bytearray, random: Random) -> None:
    if len(data) > 4:
        data[random.randrange(4, len(data))] ^= 1 << random.randrange(8)


def overwrite(data: bytearray, random: Random) -> None:
    """Put in what lengths and counts are feared for."""
    position = random.randrange(4, len(data) + 1)
    value = random.choice(FEARED)
    data[position : position + len(value)] = value


def insert(data: bytearray, random: Random) -> None:
    position = random.randrange(4, len(data) + 1)
    data[position:position] = random.choice((random.choice(FEARED), random.randbytes(random.randrange(1, 40))))


def repeat(data: bytearray, random: Random) -> None:
    start = random.randrange(4, len(data) + 1)
    data += data[start : start + 64] * random.randrange(1, 50)


CHANGES: list[Callable[[bytearray, Random], None]] = [cut, flip_a_bit, overwrite, insert, repeat]
FEARED = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x07",
    b"\xff" * 10,
    b"\x00\xff\xff\xff",
    bytes(16),
]


def changed_batch(batch: bytes, random: Random) -> bytes:
    """Return the batch with a few bytes changed behind its magic, its length and its CRC right."""
    data = bytearray(batch)
    for _ in range(random.choice((1, 1, 2, 3))):
        position = random.choice((random.randrange(21, 61), random.randrange(61, len(data))))
        data[position] = random.choice((data[position] ^ 1 << random.randrange(8), 0xFF, 0x80, 0, 1, 0x7F))
    if random.random() < 0.2:
        del data[random.randrange(61, len(data)) :]
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return seal(bytes(data[:61]), data[61:])
