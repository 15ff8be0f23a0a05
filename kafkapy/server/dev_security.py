"""Certificates for development and tests: a certificate authority and what it issues (P-256, one year)."""

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
VALID_DAYS: Final = 365
CLOCK_SKEW: Final = datetime.timedelta(hours=1)
"""Certificates are valid from an hour ago: a client's clock may be behind."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key (PKCS#8) and its certificate, as PEM."""

    key_pem: str
    certificate_pem: str

    def __repr__(self) -> str:
        return "Issued()"


class DevAuthority:
    """A certificate authority whose key is only in memory: it cannot issue anything after the process ends."""

    def __init__(self, common_name: str = "kafkapy development CA") -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        self._key = _new_key()
        self._name = _name(common_name)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(self._name, self._name, self._key).add_extension(constraints, critical=True)
        self.certificate_pem = _certificate_pem(builder.sign(self._key, hashes.SHA256()))

    def issue(self, common_name: str, names: Sequence[str] = LOCAL_NAMES) -> Issued:
        """Issue a certificate for host names and addresses."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = _new_key()
        alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
        builder = _builder(_name(common_name), self._name, key).add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Issued(key_pem, _certificate_pem(certificate))


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey") -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate_pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
