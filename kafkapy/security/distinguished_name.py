"""A certificate's subject as Java prints it: X500Principal.getName(), RFC 2253.

This text is the principal's name, on which access depends, so it must equal Java's exactly: the last RDN comes first;
only nine attributes have keywords, others are OID=#hex of the DER value; `,=+<>#;"\\` are escaped everywhere, and
spaces at both ends; a value's bytes are decoded as UTF-8 whatever its string type.
"""

import re
from typing import Final

from kafkapy.security.der import SET, Element, children, fixed, oid_text

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; all others are printed as hex."""
ESCAPED: Final = frozenset(',=+<>#;"\\')
TRIMMED: Final = " \r"
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd".encode()
"""The replacement character: Java prints it once for an encoded surrogate, Python would three times."""


def java_name(name: Element) -> str:
    """Return the text of a Name (SEQUENCE OF SET OF attribute and value). Raises DerError."""
    return ",".join(
        "+".join(_attribute(each) for each in children(relative, SET)) for relative in reversed(children(name))
    )


def _attribute(element: Element) -> str:
    type_, value = fixed(element, 2)
    oid = oid_text(type_)
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in STRING_TAGS:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    text = _SURROGATE.sub(_REPLACEMENT, value.content).decode("utf-8", "replace")
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    """Escape special characters everywhere, and spaces at both ends of the text."""
    letters = [_letter(letter) for letter in text]
    stripped = text.lstrip(TRIMMED)
    first = len(text) - len(stripped)
    last = first + len(stripped.rstrip(TRIMMED))
    for index in (*range(first), *range(last, len(text))):
        letters[index] = "\\" + letters[index]
    return "".join(letters)


def _letter(letter: str) -> str:
    if letter in ESCAPED:
        return "\\" + letter
    return "\\00" if letter == "\0" else letter
