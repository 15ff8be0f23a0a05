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
VALID: Final = datetime.timedelta(days=365)
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
    """A certificate authority whose key is only in memory: it cannot issue anything after the process ends.

    Its certificates pass strict verification (X509_V_FLAG_X509_STRICT, the default of Python 3.13's clients): they have
    key identifiers, and the authority's has its key usage.
    """

    def __init__(self, common_name: str = "kafkapy development CA") -> None:
        from cryptography import x509

        self._key = _new_key()
        self._name = common_name
        usage = dict.fromkeys(
            (
                "digital_signature",
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        builder = (
            self._builder(common_name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        )
        self.certificate_pem = self._signed(builder)

    def issue(self, common_name: str, names: Sequence[str] = LOCAL_NAMES) -> Issued:
        """Issue a certificate for host names, in their ASCII form, and addresses."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = _new_key()
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = self._builder(common_name, key).add_extension(alternatives, critical=False)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Issued(key_pem, self._signed(builder))

    def _builder(self, common_name: str, key: "EllipticCurvePrivateKey") -> "x509.CertificateBuilder":
        """Return an unsigned certificate for a key, with the fields that all have."""
        from cryptography import x509

        now = datetime.datetime.now(datetime.UTC)
        public_key, issuer_key = key.public_key(), self._key.public_key()
        return (
            x509.CertificateBuilder()
            .serial_number(x509.random_serial_number())
            .issuer_name(_name(self._name))
            .subject_name(_name(common_name))
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + VALID)
            .public_key(public_key)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        )

    def _signed(self, builder: "x509.CertificateBuilder") -> str:
        """Return the certificate as PEM."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding

        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
