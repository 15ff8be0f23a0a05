"""Reads what the cryptography package does not return of a PKCS12 file: several keys, certificates without password.

    PFX (RFC 7292): version, ContentInfo of type data: an OCTET STRING with a SEQUENCE of ContentInfo, then a MAC
    ContentInfo: type, [0] content. Of type data: an OCTET STRING with a SEQUENCE of bags. Encrypted ones are left out.
    bag: type, [0] value, SET of attributes. A key is a PKCS#8 EncryptedPrivateKeyInfo, a certificate is DER in an
    OCTET STRING in [0]

Java keeps keys in bags that are encrypted one by one, and encrypts all certificates together, or not at all
(keystore.pkcs12.certProtectionAlgorithm=NONE): then Java loads them without a password, too.
"""

from collections.abc import Iterator
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.security import der
from kafkapy.security.der import DerError, Element

DATA: Final = "1.2.840.113549.1.7.1"
ENCRYPTED_KEY: Final = "1.2.840.113549.1.12.10.1.2"
CERTIFICATE: Final = "1.2.840.113549.1.12.10.1.3"
X509: Final = "1.2.840.113549.1.9.22.1"
MARKS: Final = frozenset(("2.16.840.1.113894.746875.1.1", "1.2.840.113549.1.9.21"))
"""The attributes of certificates that Java trusts: its own, trustedKeyUsage, and localKeyID, which a key's leaf has.
Other certificates belong to a key's chain."""
_EXPLICIT: Final = 0xA0


class PlainParts(NamedTuple):
    """The parts of a file that are not encrypted together: keys, each encrypted by itself, and trusted certificates."""

    encrypted_keys: tuple[bytes, ...]
    trusted: tuple[bytes, ...]


def plain_parts(data: bytes) -> PlainParts:
    """Return those parts of a file. Its MAC is not checked. Raises DerError."""
    keys: list[bytes] = []
    trusted: list[bytes] = []
    for bag in _bags(data):
        kind, value, *attributes = _fields(bag, 2)
        content = _fields(value, 1, _EXPLICIT)[0]
        if der.oid_text(kind) == ENCRYPTED_KEY:
            keys.append(content.encoded)
        elif der.oid_text(kind) == CERTIFICATE and any(map(_has_mark, attributes)):
            form, certificate = der.fixed(content, 2)
            if der.oid_text(form) == X509:
                trusted.append(_octets(certificate))
    return PlainParts(tuple(keys), tuple(trusted))


def _bags(data: bytes) -> Iterator[Element]:
    for content in _data_of(_fields(der.read_one(data), 2)[1]):
        yield from _data_of(content)


def _data_of(content_info: Element) -> list[Element]:
    """Return the elements of the SEQUENCE in a ContentInfo; none of an encrypted one."""
    kind, *content = _fields(content_info, 1)
    if der.oid_text(kind) != DATA or len(content) != 1:
        return []
    return der.children(der.read_one(_octets(content[0])))


def _octets(element: Element) -> bytes:
    """Return the OCTET STRING in [0]."""
    return der.expect(_fields(element, 1, _EXPLICIT)[0], der.OCTET_STRING)


def _fields(element: Element, least: int, tag: int = der.SEQUENCE) -> list[Element]:
    found = der.children(element, tag)
    if len(found) < least:
        raise DerError(f"{len(found)} elements stand where {least} should")
    return found


def _has_mark(attributes: Element) -> bool:
    return any(der.oid_text(_fields(each, 1)[0]) in MARKS for each in der.children(attributes, der.SET))
