"""The bytes of certificates, beside what the RFCs' examples and cryptography's reader say of them."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kafkapy.security import der
from kafkapy.security.certificate_writer import Unsigned, to_be_signed

PUBLIC_KEY = (
    ec.derive_private_key(2, ec.SECP256R1()).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)


def unsigned(**fields: object) -> bytes:
    some: dict[str, object] = {
        "serial": b"\x01",
        "issuer": "CA",
        "subject": "broker",
        "not_before": "20260101000000",
        "not_after": "20270101000000",
        "public_key": PUBLIC_KEY,
        "issuer_key": PUBLIC_KEY,
    }
    return to_be_signed(Unsigned(**some | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dotted", "encoded"),
    [
        ("1.2.840.113549", "06062a864886f70d"),
        ("2.5.29.17", "0603551d11"),
        ("2.100.3", "0603813403"),
    ],
)
def test_object_identifiers(dotted: str, encoded: str):
    """X.690, 8.19.5 has the third; RFC 5280 and 8017 the others."""
    assert der.encode_oid(dotted).hex() == encoded


@pytest.mark.parametrize("dotted", ["1.2.840.10045.4.3.2", "2.5.4.3", "2.999.1"])
def test_object_identifiers_read_as_they_were_written(dotted: str):
    assert der.oid_text(der.read_one(der.encode_oid(dotted))) == dotted


@pytest.mark.parametrize(
    ("moment", "encoded"),
    [
        ("20491231235959", b"\x17\x0d491231235959Z"),
        ("20500101000000", b"\x18\x0f20500101000000Z"),
    ],
)
def test_times_from_2050_on_are_generalized(moment: str, encoded: bytes):
    """RFC 5280, 4.1.2.5."""
    assert encoded in unsigned(not_after=moment)


def test_a_name_that_is_not_ascii_is_refused():
    """Host names are given in their ASCII form (RFC 5890)."""
    with pytest.raises(ValueError, match="ascii"):
        unsigned(names=("bücher.example",))


def test_a_subject_may_have_any_letters():
    certificate = der.encode(
        der.SEQUENCE,
        unsigned(subject="Бро кер, x=1"),
        der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2")),
        der.encode(der.BIT_STRING, b"\0", b"0"),
    )
    read = x509.load_der_x509_certificate(certificate)
    assert [each.value for each in read.subject] == ["Бро кер, x=1"]
