"""Reads from an X.509 certificate what the broker needs: subject, alternative names, expiry (RFC 5280)."""

import re
from functools import lru_cache
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.security import der
from kafkapy.security.der import DerError, Element
from kafkapy.security.distinguished_name import java_name

SUBJECT_ALT_NAME: Final = "2.5.29.17"
KEPT: Final = 8
"""Certificates of listeners: a start asks twice for each listener's, and listeners often share one."""
_VERSION_TAG: Final = 0xA0
_EXTENSIONS_TAG: Final = 0xA3
_TIME: Final = re.compile(rb"(\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z")


class Certificate(NamedTuple):
    """The fields that are read from a certificate."""

    subject: str
    """The subject as Java prints it (distinguished_name.py)."""
    not_after: str
    """The end of validity, YYYYMMDDHHMMSS in UTC: comparing the texts compares the times."""
    alternative_names: frozenset[bytes]
    """The encoded GeneralNames of the subjectAltName extension."""


@lru_cache(KEPT)
def read_certificate(encoded: bytes) -> Certificate:
    """Return the fields of a certificate (DER). Raises DerError."""
    _, _, _, validity, subject, _, *rest = _fields(encoded)
    _, not_after = der.fixed(validity, 2)
    return Certificate(java_name(subject), _time(not_after), _alternative_names(rest))


def subject_of(encoded: bytes) -> str:
    """Return a certificate's subject as Java prints it, reading nothing behind it. Raises DerError."""
    return java_name(_fields(encoded)[4])


def _fields(encoded: bytes) -> list[Element]:
    """Return the fields of a certificate from the serial number on, six or more."""
    fields = der.children(_first(der.read_one(encoded)))
    if fields and fields[0].tag == _VERSION_TAG:
        fields = fields[1:]
    if len(fields) < 6:
        raise DerError("a certificate has more fields")
    return fields


def _first(element: Element) -> Element:
    found = der.children(element)
    if not found:
        raise DerError("a sequence is empty")
    return found[0]


def _time(element: Element) -> str:
    found = _TIME.fullmatch(element.content)
    if found is None:
        raise DerError("a time cannot be read")
    if element.tag == der.GENERALIZED_TIME and found[1]:
        return element.content[:-1].decode()
    if element.tag == der.UTC_TIME and not found[1]:
        return ("19" if found[2] >= b"50" else "20") + element.content[:-1].decode()
    raise DerError("a time is of no known kind")


def _alternative_names(rest: list[Element]) -> frozenset[bytes]:
    for field in rest:
        if field.tag == _EXTENSIONS_TAG:
            for extension in der.children(der.read_one(field.content)):
                parts = der.children(extension)
                if len(parts) > 1 and der.oid_text(parts[0]) == SUBJECT_ALT_NAME:
                    names = der.read_one(der.expect(parts[-1], der.OCTET_STRING))
                    return frozenset(each.encoded for each in der.children(names))
    return frozenset()
