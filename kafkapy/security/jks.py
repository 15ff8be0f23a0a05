"""JKS, the default key store format of Java up to version 8: keys with their chains, and trusted certificates.

    u4 0xFEEDFEED, u4 version (1 or 2), u4 count, then entries, then SHA-1 over password, a constant and all before it
    entry: u4 tag, UTF alias, u8 time; tag 1, a key: u4 size, PKCS#8 encrypted, u4 count, certificates; tag 2: one
    certificate: UTF type (version 2), u4 size, DER

Keys are encrypted by XOR with a chain of SHA-1 hashes (OID 1.3.6.1.4.1.42.2.17.1.1): 20 bytes of salt, the key, a
20-byte check value. Without a password the final hash is not verified and keys are not decrypted, as in Java.
"""

import hashlib
import hmac
import struct
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.security import der

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_CONSTANT: Final = b"Mighty Aphrodite"
_PROTECTION: Final = "1.3.6.1.4.1.42.2.17.1.1"
_HASH_BYTES: Final = 20
_KEY, _TRUSTED = 1, 2


class KeyStoreError(ValueError):
    """A key store cannot be read, or its password is wrong."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """An encrypted private key and its certificate chain (DER), the key's own certificate first."""

    alias: str
    protected_key: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Jks:
    """The entries of a key store, in its order."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def read(self, count: int) -> bytes:
        part = self._data[self._position : self._position + count]
        if len(part) < count:
            raise KeyStoreError("the key store is cut off")
        self._position += count
        return part

    def number(self) -> int:
        return int.from_bytes(self.read(4), "big")

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.read(2))
        return self.read(size).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()
        return self.read(self.number())

    @property
    def left_bytes(self) -> int:
        return len(self._data) - self._position


def read_jks(data: bytes, password: str | None) -> Jks:
    """Return the entries of a JKS file. Raises KeyStoreError."""
    if data[:4] != MAGIC or len(data) < 12 + _HASH_BYTES:
        raise KeyStoreError("the key store is cut off")
    body = data[:-_HASH_BYTES]
    if password is not None:
        digest = hashlib.sha1(_java_bytes(password) + _CONSTANT + body).digest()
        if not hmac.compare_digest(digest, data[-_HASH_BYTES:]):
            raise KeyStoreError("the key store was tampered with, or its password is wrong")
    reader = _Reader(body)
    reader.read(4)
    version = reader.number()
    if version not in (1, 2):
        raise KeyStoreError(f"JKS version {version} is not known")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag, alias, _ = reader.number(), reader.text(), reader.read(8)
        if tag == _KEY:
            key = reader.read(reader.number())
            chain = tuple(reader.certificate(version) for _ in range(min(reader.number(), reader.left_bytes)))
            keys.append(KeyEntry(alias, key, chain))
        elif tag == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise KeyStoreError(f"entry {alias} is of an unknown kind")
    if reader.left_bytes:
        raise KeyStoreError("bytes follow the last entry")
    return Jks(tuple(keys), tuple(trusted))


def open_key(entry: KeyEntry, password: str) -> bytes:
    """Return the decrypted key as PKCS#8 (DER). Raises KeyStoreError if it is damaged or the password is wrong."""
    try:
        algorithm, value = der.fixed(der.read_one(entry.protected_key), 2)
        oid = der.oid_text(der.children(algorithm)[0])
        data = der.expect(value, der.OCTET_STRING)
    except (ValueError, IndexError) as error:
        raise KeyStoreError(f"the key of {entry.alias} cannot be read: {error}") from error
    if oid != _PROTECTION:
        raise KeyStoreError(f"the key of {entry.alias} is protected by {oid}, which is not known")
    salt, hidden, check = data[:_HASH_BYTES], data[_HASH_BYTES:-_HASH_BYTES], data[-_HASH_BYTES:]
    secret = _java_bytes(password)
    stream = bytearray()
    digest = salt
    while len(stream) < len(hidden):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise KeyStoreError(f"the key of {entry.alias} cannot be decrypted: its password is wrong")
    return key


def _java_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
