"""Certificates for development and tests: a certificate authority and what it issues (P-256, one year)."""

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.security import pem
from kafkapy.security.certificate_writer import Unsigned, p256_private_key, p256_public_key, signed, to_be_signed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
VALID_S: Final = 365 * 24 * 3600
CLOCK_SKEW_S: Final = 3600
"""Certificates are valid from an hour ago: a client's clock may be behind."""
SERIAL_BITS: Final = 159
"""A serial number is a positive integer of 20 bytes at most (RFC 5280)."""


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
        self._key = _new_key()
        self._name = common_name
        self.certificate_pem = self._certify(common_name, self._key)

    def issue(self, common_name: str, names: Sequence[str] = LOCAL_NAMES) -> Issued:
        """Issue a certificate for host names and addresses."""
        key = _new_key()
        numbers = key.private_numbers()
        public = numbers.public_numbers
        key_pem = pem.encode("PRIVATE KEY", p256_private_key(numbers.private_value, public.x, public.y))
        return Issued(key_pem, self._certify(common_name, key, names))

    def _certify(self, common_name: str, key: "EllipticCurvePrivateKey", names: Sequence[str] = ()) -> str:
        """Return a certificate for a key, as PEM."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        now_s = time.time()
        unsigned = to_be_signed(
            Unsigned(
                serial=_new_serial(),
                issuer=self._name,
                subject=common_name,
                not_before=_utc(now_s - CLOCK_SKEW_S),
                not_after=_utc(now_s + VALID_S),
                public_key=_public_bytes(key),
                issuer_key=_public_bytes(self._key),
                names=names,
            )
        )
        return pem.encode("CERTIFICATE", signed(unsigned, self._key.sign(unsigned, ec.ECDSA(hashes.SHA256()))))


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _utc(seconds: float) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))


def _new_serial() -> bytes:
    number = secrets.randbits(SERIAL_BITS) | 1
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _public_bytes(key: "EllipticCurvePrivateKey") -> bytes:
    """Return a key's SubjectPublicKeyInfo (DER). cryptography's own encoder would import 8 ms of other formats."""
    numbers = key.public_key().public_numbers()
    return p256_public_key(numbers.x, numbers.y)
