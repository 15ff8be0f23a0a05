"""Translates Java's names of cipher suites to OpenSSL's.

Java uses the IANA names (TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; some old ones with SSL_ for TLS_). OpenSSL uses its own
names up to TLS 1.2 (ECDHE-RSA-AES128-GCM-SHA256) and the IANA names for TLS 1.3.
"""

import re
from typing import Final

TLS13_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
OFFERED_TLS13: Final = frozenset(TLS13_SUITES[:3])
"""The TLS 1.3 suites that OpenSSL offers; ssl.SSLContext cannot select among them (CPython 3.14)."""

RENEGOTIATION_SIGNAL: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""In Java's list of suites, but none: with it a client says that it knows RFC 5746."""

_SUITE: Final = re.compile(
    r"(?:TLS|SSL)_(?P<exchange>RSA|DHE_RSA|DHE_DSS|ECDHE_RSA|ECDHE_ECDSA)_WITH_(?P<cipher>[A-Z0-9_]+)"
)
_FIXED_ECDH: Final = re.compile(r"(?<=TLS)_ECDH_(?:RSA|ECDSA)_")
"""Key exchange with the certificate's own ECDH key, which Java knows and OpenSSL has not had since 1.1."""
_CIPHER: Final = re.compile(
    r"(?P<name>AES|CAMELLIA)_(?P<bits>128|256)_(?P<mode>CBC|GCM|CCM_8|CCM)(?:_(?P<mac>SHA\d*))?"
)


def is_javas(suite: str) -> bool:
    """Return whether Java takes the name in ssl.cipher.suites, and the suite is not one without security."""
    if suite in TLS13_SUITES or suite == RENEGOTIATION_SIGNAL:
        return True
    return openssl_name(_FIXED_ECDH.sub("_RSA_", suite, 1)) is not None


def openssl_name(suite: str) -> str | None:
    """Return OpenSSL's name of a suite up to TLS 1.2 that authenticates and encrypts, None for any other text."""
    found = _SUITE.fullmatch(suite)
    if found is None:
        return None
    cipher = _cipher(found["cipher"])
    if cipher is None:
        return None
    exchange = found["exchange"].replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"


def _cipher(text: str) -> str | None:
    if text.startswith("CHACHA20_POLY1305"):
        return "CHACHA20-POLY1305"
    if text == "3DES_EDE_CBC_SHA":
        return "DES-CBC3-SHA"
    found = _CIPHER.fullmatch(text)
    if found is None:
        return None
    name = f"{found['name']}{found['bits']}"
    if found["mode"] == "CBC":
        return f"{name}-{found['mac']}" if found["mac"] else None
    mode = found["mode"].replace("_", "")
    return f"{name}-{mode}-{found['mac']}" if found["mac"] else f"{name}-{mode}"
