"""Certificates for tests: an authority, and what it issues. Keys are P-256, made once a process."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
LOCAL_NAMES = ("localhost", "127.0.0.1", "10.0.0.9")


def name_of(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@cache
def _key(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        """Return the key as PKCS#8, encrypted if there is a password."""
        how: KeySerializationEncryption = NoEncryption()
        if password is not None:
            how = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def write(self, directory: Path, name: str, password: str | None = None) -> Path:
        """Write key and certificate into one PEM file."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.pem"
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path


class Authority:
    """A certificate authority of a test's own."""

    def __init__(self, common_name: str = "test CA") -> None:
        self._issued = 0
        self.key = _key(0)
        subject = name_of(common_name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = (
            self._builder(subject, subject, self.key, 30)
            .add_extension(constraints, critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, subject: x509.Name | str, names: Sequence[str] = LOCAL_NAMES, *, days: int = 30, key_number: int = 1
    ) -> Identity:
        """Issue a certificate for DNS names and addresses; `days` from now on, or until so many days ago."""
        subject = name_of(subject) if isinstance(subject, str) else subject
        key = _key(key_number)
        builder = self._builder(subject, self.certificate.subject, key, days)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        return Identity(key, builder.sign(self.key, hashes.SHA256()))

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 60 * DAY)
            .not_valid_after(now + days * DAY)
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def server_context(identity: Identity, directory: Path, trusted: Authority | None = None) -> ssl.SSLContext:
    """Return the context of a server; with `trusted`, clients must show a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.write(directory, "server"))
    if trusted is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted.certificate_pem)
    return context


def client_context(
    authority: Authority, identity: Identity | None = None, directory: Path | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate_pem)
    if identity is not None:
        assert directory is not None
        context.load_cert_chain(identity.write(directory, "client"))
    return context
