"""The development authority: clients that verify strictly accept what it issues, and nothing imports x509 for it."""

import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from kafkapy.server.tls.dev_certificates import DevAuthority

AUTHORITY = DevAuthority()
ISSUED = AUTHORITY.issue("broker", ("localhost", "127.0.0.1", "::1"))
CA = x509.load_pem_x509_certificate(AUTHORITY.certificate_pem.encode())
LEAF = x509.load_pem_x509_certificate(ISSUED.certificate_pem.encode())


def server_context(tmp_path: Path) -> ssl.SSLContext:
    path = tmp_path / "broker.pem"
    path.write_text(ISSUED.key_pem + ISSUED.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_verifies_strictly_accepts_the_certificate(tmp_path: Path, host: str):
    """Python 3.13 does so by default: key identifiers and the authority's key usage must be there."""
    client = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    handshake(server_context(tmp_path), client, host)


def test_a_client_refuses_another_name(tmp_path: Path):
    client = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server_context(tmp_path), client, "example.org")


def test_a_client_of_another_authority_refuses_the_certificate(tmp_path: Path):
    client = ssl.create_default_context(cadata=DevAuthority().certificate_pem)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(tmp_path), client, "localhost")


def test_the_leaf_has_its_names_and_its_key():
    assert [each.value for each in LEAF.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["broker"]
    names = LEAF.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("::1"),
    ]
    key = load_pem_private_key(ISSUED.key_pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == LEAF.public_key()
    assert isinstance(key.curve, ec.SECP256R1)


def test_the_authority_issues_leaves_only():
    constraints = CA.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = CA.extensions.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    assert CA.issuer == CA.subject == LEAF.issuer
    LEAF.verify_directly_issued_by(CA)
    CA.verify_directly_issued_by(CA)


def test_identifiers_link_the_leaf_to_its_authority():
    def own(each: x509.Certificate) -> bytes:
        return each.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest

    linked = LEAF.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert linked == own(CA) != own(LEAF)


def test_no_two_certificates_share_a_key_or_a_serial_number():
    other = x509.load_pem_x509_certificate(AUTHORITY.issue("broker").certificate_pem.encode())
    assert other.public_key() != LEAF.public_key()
    assert len({other.serial_number, LEAF.serial_number, CA.serial_number}) == 3


def test_a_name_that_is_not_ascii_is_refused():
    """Host names are given in their ASCII form (RFC 5890)."""
    with pytest.raises(ValueError, match="A-label"):
        AUTHORITY.issue("broker", ("bücher.example",))
