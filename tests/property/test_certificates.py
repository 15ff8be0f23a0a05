"""Damaged certificates, key stores, PEM and mapping rules are read or raise their own error, nothing else."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.security import pem
from kafkapy.security.certificate import read_certificate
from kafkapy.security.der import DerError
from kafkapy.security.jks import KeyStoreError, open_key, read_jks
from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper
from tests.support.certificates import Authority

CERTIFICATE = Authority().issue("alice").certificate_der
STORE = (Path(__file__).parents[1] / "golden" / "key_stores" / "keys.jks").read_bytes()
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


@QUICK
@given(EDITS, st.integers(0, 50) | st.just(0))
def test_damaged_key_stores(edits: list[tuple[int, int]], cut: int):
    try:
        for entry in read_jks(damaged(STORE, edits, cut), None).keys:
            open_key(entry, "keypass")
    except KeyStoreError:
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
