"""Writes P-256 keys (RFC 5480, 5915, 5958) and X.509 v3 certificates with ECDSA (RFC 5280, 5758).

For kafkapy's own development authority.

Importing cryptography.x509 takes longer than the start of a broker, so the few fields needed are encoded here. The
certificates pass strict verification (X509_V_FLAG_X509_STRICT, the default of Python 3.13's clients): they have key
identifiers, and the authority's has its key usage.
"""

import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.security import der

P256: Final = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.2.1"), der.encode_oid("1.2.840.10045.3.1.7"))
"""The AlgorithmIdentifier of a key: ecPublicKey on the curve P-256."""
P256_BYTES: Final = 32
_UNCOMPRESSED_POINT: Final = b"\x04"
_PUBLIC_KEY_TAG: Final = 0xA1
ECDSA_WITH_SHA256: Final = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2"))
COMMON_NAME: Final = "2.5.4.3"
SUBJECT_KEY_IDENTIFIER: Final = "2.5.29.14"
KEY_USAGE: Final = "2.5.29.15"
SUBJECT_ALT_NAME: Final = "2.5.29.17"
BASIC_CONSTRAINTS: Final = "2.5.29.19"
AUTHORITY_KEY_IDENTIFIER: Final = "2.5.29.35"

KEY_IDENTIFIER_BYTES: Final = 20
"""RFC 7093, method 1: the leftmost 160 bits of the SHA-256 of the public key."""
_TRUE: Final = der.encode(der.BOOLEAN, b"\xff")
_VERSION_3: Final = der.encode(0xA0, der.encode(der.INTEGER, b"\x02"))
_DNS_NAME_TAG: Final = 0x82
_IP_ADDRESS_TAG: Final = 0x87
_KEY_IDENTIFIER_TAG: Final = 0x80
_EXTENSIONS_TAG: Final = 0xA3
_SIGNS_CERTIFICATES: Final = der.encode(der.BIT_STRING, b"\x01\x06")
"""keyCertSign and cRLSign; one bit of the byte is unused."""


def p256_public_key(x: int, y: int) -> bytes:
    """Return the SubjectPublicKeyInfo (DER) of a point on P-256."""
    return der.encode(der.SEQUENCE, P256, _point(x, y))


def p256_private_key(private_value: int, x: int, y: int) -> bytes:
    """Return the unencrypted PKCS#8 form (DER) of a private key with its public point."""
    key = der.encode(
        der.SEQUENCE,
        der.encode(der.INTEGER, b"\x01"),
        der.encode(der.OCTET_STRING, private_value.to_bytes(P256_BYTES, "big")),
        der.encode(_PUBLIC_KEY_TAG, _point(x, y)),
    )
    return der.encode(der.SEQUENCE, der.encode(der.INTEGER, b"\0"), P256, der.encode(der.OCTET_STRING, key))


def _point(x: int, y: int) -> bytes:
    encoded = x.to_bytes(P256_BYTES, "big") + y.to_bytes(P256_BYTES, "big")
    return der.encode(der.BIT_STRING, b"\0", _UNCOMPRESSED_POINT, encoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsigned:
    """The fields of a certificate before it is signed."""

    serial: bytes
    """A positive integer, big-endian, at most 20 bytes."""
    issuer: str
    """The issuer's common name."""
    subject: str
    """The subject's common name."""
    not_before: str
    """YYYYMMDDHHMMSS in UTC."""
    not_after: str
    public_key: bytes
    """The subject's SubjectPublicKeyInfo (DER)."""
    issuer_key: bytes
    """The issuer's SubjectPublicKeyInfo; equal to `public_key` in the certificate of an authority."""
    names: Sequence[str] = ()
    """Host names and IP addresses of the subject."""


def to_be_signed(fields: Unsigned) -> bytes:
    """Return the TBSCertificate (DER). An authority's certificate may issue leaf certificates only."""
    assert 0 < len(fields.serial) <= 20, "a serial number has 1 to 20 bytes"
    assert fields.serial[0] < 0x80, "a serial number is positive"
    return der.encode(
        der.SEQUENCE,
        _VERSION_3,
        der.encode(der.INTEGER, fields.serial),
        ECDSA_WITH_SHA256,
        _name(fields.issuer),
        der.encode(der.SEQUENCE, _time(fields.not_before), _time(fields.not_after)),
        _name(fields.subject),
        fields.public_key,
        der.encode(_EXTENSIONS_TAG, der.encode(der.SEQUENCE, *_extensions(fields))),
    )


def signed(unsigned: bytes, signature: bytes) -> bytes:
    """Return the certificate (DER). `signature`: ECDSA with SHA-256 over `unsigned`, the issuer's."""
    return der.encode(der.SEQUENCE, unsigned, ECDSA_WITH_SHA256, der.encode(der.BIT_STRING, b"\0", signature))


def _extensions(fields: Unsigned) -> list[bytes]:
    own = der.encode(der.OCTET_STRING, _key_identifier(fields.public_key))
    issuer = der.encode(_KEY_IDENTIFIER_TAG, _key_identifier(fields.issuer_key))
    found = [
        _extension(SUBJECT_KEY_IDENTIFIER, own),
        _extension(AUTHORITY_KEY_IDENTIFIER, der.encode(der.SEQUENCE, issuer)),
    ]
    if fields.public_key == fields.issuer_key:
        path_length = der.encode(der.INTEGER, b"\0")
        found.append(_extension(BASIC_CONSTRAINTS, der.encode(der.SEQUENCE, _TRUE, path_length), is_critical=True))
        found.append(_extension(KEY_USAGE, _SIGNS_CERTIFICATES, is_critical=True))
    if fields.names:
        found.append(_extension(SUBJECT_ALT_NAME, der.encode(der.SEQUENCE, *map(_general_name, fields.names))))
    return found


def _extension(oid: str, value: bytes, *, is_critical: bool = False) -> bytes:
    return der.encode(
        der.SEQUENCE,
        der.encode_oid(oid),
        _TRUE if is_critical else b"",
        der.encode(der.OCTET_STRING, value),
    )


def _key_identifier(public_key: bytes) -> bytes:
    """Return the identifier of a key: a hash of the BIT STRING's content in its SubjectPublicKeyInfo."""
    _, bits = der.fixed(der.read_one(public_key), 2)
    return hashlib.sha256(der.expect(bits, der.BIT_STRING)[1:]).digest()[:KEY_IDENTIFIER_BYTES]


def _name(common_name: str) -> bytes:
    attribute = der.encode(der.SEQUENCE, der.encode_oid(COMMON_NAME), der.encode(der.UTF8_STRING, common_name.encode()))
    return der.encode(der.SEQUENCE, der.encode(der.SET, attribute))


def _time(text: str) -> bytes:
    """Return YYYYMMDDHHMMSS as a UTCTime, from 2050 on as a GeneralizedTime (RFC 5280, 4.1.2.5)."""
    if text >= "2050":
        return der.encode(der.GENERALIZED_TIME, f"{text}Z".encode())
    return der.encode(der.UTC_TIME, f"{text[2:]}Z".encode())


def _general_name(name: str) -> bytes:
    try:
        return der.encode(_IP_ADDRESS_TAG, ipaddress.ip_address(name).packed)
    except ValueError:
        return der.encode(_DNS_NAME_TAG, name.encode("ascii"))
