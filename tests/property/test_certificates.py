"""Damaged certificates, key stores, PEM and mapping rules are read or raise their own error, nothing else."""

from pathlib import Path

from cryptography import x509
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkapy.security import der, pem
from kafkapy.security.certificate import read_certificate
from kafkapy.security.der import DerError, read_one
from kafkapy.security.distinguished_name import KEYWORDS, java_name
from kafkapy.security.jks import KeyStoreError, open_key, read_jks
from kafkapy.security.pkcs12 import plain_parts
from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper
from tests.support.certificates import Authority
from tests.support.der_encoding import encode, encode_oid

CERTIFICATE = Authority().issue("alice").certificate_der
STORE = (Path(__file__).parents[1] / "golden" / "key_stores" / "keys.jks").read_bytes()
PKCS12_STORES = [
    (Path(__file__).parents[1] / "golden" / "key_stores" / name).read_bytes()
    for name in ("two_keys.p12", "trust_open.p12", "keys_open.p12")
]
QUICK = settings(max_examples=300, deadline=None)
EDITS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=4)


def damaged(data: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    out = bytearray(data)
    for position, byte in edits:
        out[position % len(out)] = byte
    return bytes(out[: len(out) - cut])


@QUICK
@given(EDITS, st.integers(0, 20) | st.just(0))
def test_damaged_certificates(edits: list[tuple[int, int]], cut: int):
    try:
        assert isinstance(read_certificate(damaged(CERTIFICATE, edits, cut)).subject, str)
    except DerError:
        return


@QUICK
@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate(data: bytes):
    try:
        read_certificate(data)
    except DerError:
        return


Attribute = tuple[str, str]
"""An object identifier and a value."""
VALUES = st.text(
    st.sampled_from(',=+<>#;"\\ ae0\0é日') | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12
)
WITHOUT_KEYWORD = ("2.5.4.5", "2.5.4.12", "1.2.840.113549.1.9.1", "2.999.3")
ATTRIBUTES = st.tuples(
    st.sampled_from([*(KEYWORDS.keys() - {"2.5.4.6"})]), VALUES.filter(lambda text: "\r" not in text)
) | (st.tuples(st.sampled_from(WITHOUT_KEYWORD), st.text(st.characters(codec="ascii"), min_size=1, max_size=12)))
NAMES = st.lists(st.lists(ATTRIBUTES, min_size=1, max_size=3, unique=True), max_size=4)


def encoded(name: list[list[Attribute]]) -> bytes:
    return encode(der.SEQUENCE, *(encode(der.SET, *map(attribute, relative)) for relative in name))


def attribute(given: Attribute) -> bytes:
    oid, value = given
    return encode(der.SEQUENCE, encode_oid(oid), encode(der.UTF8_STRING, value.encode()))


def read_back(printed: str) -> list[list[Attribute]]:
    """Return what cryptography's parser of RFC 4514 reads in a name."""
    relatives = x509.Name.from_rfc4514_string(printed).rdns
    return [[(each.oid.dotted_string, str(each.value)) for each in relative] for relative in relatives]


def as_printed(given: Attribute) -> Attribute:
    """Without a keyword the value is printed as its encoding: tag and length come before the text."""
    oid, value = given
    return given if oid in KEYWORDS else (oid, f"{chr(der.UTF8_STRING)}{chr(len(value))}{value}")


@QUICK
@given(NAMES)
def test_a_printed_name_says_all_that_the_certificate_says_and_nothing_else(name: list[list[Attribute]]):
    printed = java_name(read_one(encoded(name)))
    assert read_back(printed) == [[as_printed(each) for each in relative] for relative in name]


SOME_NAME = encoded(
    [[("2.5.4.3", "alice"), ("2.999.3", "x")], [("2.5.4.10", "a,b")], [("0.9.2342.19200300.100.1.25", "dc")]]
)


@QUICK
@given(EDITS, st.integers(0, 20) | st.just(0))
@example([], len(SOME_NAME) - 1)
def test_damaged_names(edits: list[tuple[int, int]], cut: int):
    try:
        assert isinstance(java_name(read_one(damaged(SOME_NAME, edits, cut))), str)
    except DerError:
        return


@QUICK
@given(EDITS, st.integers(0, 50) | st.just(0))
def test_damaged_key_stores(edits: list[tuple[int, int]], cut: int):
    try:
        for entry in read_jks(damaged(STORE, edits, cut), None).keys:
            open_key(entry, "keypass")
    except KeyStoreError:
        return


@QUICK
@given(st.sampled_from(PKCS12_STORES), EDITS, st.integers(0, 50) | st.just(0))
def test_damaged_pkcs12_files(data: bytes, edits: list[tuple[int, int]], cut: int):
    try:
        plain_parts(damaged(data, edits, cut))
    except DerError:
        return


@QUICK
@given(st.text(alphabet="-BEGIN CERTIFICATE\nENDabcd=+/: ", max_size=300))
def test_any_text_as_pem(text: str):
    try:
        pem.blocks(text)
    except ValueError:
        return


@QUICK
@given(st.text(alphabet="RULE:^CN=(.*?)$/1LU,\\DEFAT {}a", max_size=60))
def test_any_text_as_mapping_rules(text: str):
    try:
        PrincipalMapper(text).name_of("CN=a,O=b")
    except MappingRuleError:
        return
